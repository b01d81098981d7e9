import * as vscode from "vscode";

const SIGN = /__global__|@(?:triton\.)?jit\b/;

/** The texts that the server is told of. */
export const DOCUMENTS = [
  { scheme: "file", language: "cuda-cpp" },
  { scheme: "file", language: "cuda" },
  { scheme: "file", pattern: "**/*.{cu,cuh}" },
  { scheme: "file", language: "python" },
];

/** Whether a text looks as if there were a kernel in it; the server has the last word. */
export function holdsKernels(document: vscode.TextDocument | undefined): document is vscode.TextDocument {
  return (
    document?.uri.scheme === "file" && vscode.languages.match(DOCUMENTS, document) > 0 && SIGN.test(document.getText())
  );
}
