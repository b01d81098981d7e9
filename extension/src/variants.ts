import * as vscode from "vscode";
import type { ListedVariant, Variant, VariantTexts } from "./protocol";
import type { Server } from "./server";

const SCHEME = "kernel-lsp-variant";
const PAUSE_MS = 300;

interface Shown {
  /** The kernel file. */
  uri: string;
  verdict: string;
  /** The file that is shown as the variant would have it. */
  file: string;
}

/** Verified variants: a list to pick from, their differences from the text as it is, and applying them. */
export class Variants implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.#changed.event;
  readonly #subscriptions: vscode.Disposable[];
  readonly #last = new Map<string, string>();
  #pause: NodeJS.Timeout | undefined;

  constructor(readonly server: Server) {
    this.#subscriptions = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        if (document.uri.scheme === "file") this.#refreshSoon();
      }),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#last.delete(uri.query);
      }),
    ];
  }

  dispose(): void {
    clearTimeout(this.#pause);
    for (const one of [...this.#subscriptions, this.#changed]) one.dispose();
  }

  /** Those of a file, best first. */
  async list(uri: string): Promise<ListedVariant[]> {
    const answer = await this.server.request("variants", { textDocument: { uri } });
    return answer.variants;
  }

  /** Shows what a variant would change, file by file; the first one has the focus. */
  async showDifference(uri: string, verdict: string): Promise<void> {
    const variant = await this.#texts(uri, verdict);
    for (const { uri: file, text } of variant.files.toReversed()) {
      const now = vscode.Uri.parse(file);
      if (variant.creates) {
        await vscode.window.showTextDocument(address({ uri, verdict, file }), { preview: false });
        continue;
      }
      const title = `${now.path.split("/").at(-1) ?? file}: ${variant.label}, ${brief(variant)}`;
      const before = await vscode.workspace.openTextDocument(now);
      const options = { preview: false, selection: firstDifference(before, text) };
      await vscode.commands.executeCommand("vscode.diff", now, address({ uri, verdict, file }), title, options);
    }
  }

  /** Lets the user pick one of several; with `kernel` only among those that change it. */
  async pick(uri: string, kernel?: string): Promise<void> {
    const found = (await this.list(uri)).filter((one) => kernel === undefined || one.kernels.includes(kernel));
    if (found.length === 0) {
      void vscode.window.showInformationMessage("No variant of this text was verified to be faster. Refine it first.");
      return;
    }
    const items = found.map((variant) => ({
      label: `${icon(variant)} ${brief(variant)}`,
      description: variant.label,
      detail: variant.fits ? variant.title : `${variant.title}; for an older version of the kernel`,
      variant,
    }));
    const picked = await vscode.window.showQuickPick(items, {
      title: "Verified variants",
      placeHolder: "Pick one to see what it changes",
      matchOnDescription: true,
    });
    if (picked !== undefined) await this.showDifference(uri, picked.variant.verdict);
  }

  /** Has the server apply a variant; what shows its difference is closed then. */
  async apply(uri: string, verdict: string): Promise<void> {
    if ((await this.server.run("apply", uri, verdict)) !== true) return;
    for (const tab of vscode.window.tabGroups.all.flatMap((group) => group.tabs)) {
      if (tab.input instanceof vscode.TabInputTextDiff && read(tab.input.modified)?.verdict === verdict) {
        await vscode.window.tabGroups.close(tab);
      }
    }
    await vscode.window.showTextDocument(vscode.Uri.parse(uri), { preview: false });
    vscode.window.setStatusBarMessage("$(check) Applied. Undo takes it back.", 8000);
  }

  /** The variant in a difference view. */
  shown(modified: vscode.Uri | undefined): Shown | undefined {
    return read(modified ?? activeDifference());
  }

  async provideTextDocumentContent(address: vscode.Uri): Promise<string> {
    const shown = read(address);
    if (shown === undefined) return "";
    try {
      const { files } = await this.#texts(shown.uri, shown.verdict);
      const text = files.find((one) => one.uri === shown.file)?.text ?? "";
      this.#last.set(address.query, text);
      return text;
    } catch (error) {
      // It is for an older text now, say: what it was stays in view, and applying it says why that cannot be.
      return this.#last.get(address.query) ?? (error instanceof Error ? error.message : String(error));
    }
  }

  async #texts(uri: string, verdict: string): Promise<VariantTexts> {
    return await this.server.request("variant", { textDocument: { uri }, verdict });
  }

  #refreshSoon(): void {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      for (const { uri } of vscode.workspace.textDocuments) {
        if (uri.scheme === SCHEME) this.#changed.fire(uri);
      }
    }, PAUSE_MS);
  }
}

function icon(variant: ListedVariant): string {
  if (variant.pending) return "$(watch)";
  return variant.fits ? "$(verified)" : "$(history)";
}

/** How much faster, without how sure. */
export function brief(variant: Variant): string {
  return variant.title.split(" (")[0] ?? variant.title;
}

/** What a variant is, in a sentence. */
export function sentence(variant: Variant): string {
  return `${variant.label}: ${variant.title}`;
}

/** Where a text begins to differ from a document, so that it can be shown where lines are long. */
function firstDifference(document: vscode.TextDocument, text: string): vscode.Range {
  const before = document.getText();
  let at = 0;
  while (at < before.length && before[at] === text[at]) at++;
  const place = document.positionAt(at);
  return new vscode.Range(place, place);
}

function address(shown: Shown): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: vscode.Uri.parse(shown.file).path, query: JSON.stringify(shown) });
}

function read(uri: vscode.Uri | undefined): Shown | undefined {
  return uri?.scheme === SCHEME ? (JSON.parse(uri.query) as Shown) : undefined;
}

function activeDifference(): vscode.Uri | undefined {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  return input instanceof vscode.TabInputTextDiff ? input.modified : undefined;
}
