import * as vscode from "vscode";

/** Of kernels, and of a plain PyTorch module that one can be written for. */
const SIGN = /__global__|@(?:triton\.|gluon\.)?jit\b|@cute\.kernel\b|\bload_inline\b|\bget_init_inputs\b/;

/** The texts that the server is told of; one that is in no file yet has a language alone. */
export const DOCUMENTS = [
  ...["cuda-cpp", "cuda", "python"].map((language) => ({ scheme: "untitled", language })),
  { scheme: "file", language: "cuda-cpp" },
  { scheme: "file", language: "cuda" },
  { scheme: "file", pattern: "**/*.{cu,cuh,h,hpp}" },
  { scheme: "file", language: "python" },
];

/** Whether a text looks as if the server had something to say about it; the server has the last word. */
export function holdsKernels(document: vscode.TextDocument | undefined): document is vscode.TextDocument {
  return document !== undefined && vscode.languages.match(DOCUMENTS, document) > 0 && SIGN.test(document.getText());
}
