import * as vscode from "vscode";
import type { News } from "./news";
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

  constructor(
    readonly server: Server,
    readonly news: News,
  ) {
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
    this.news.seen(verdict);
    const variant = await this.#texts(uri, verdict);
    for (const { uri: file, text } of variant.files.toReversed()) {
      const now = vscode.Uri.parse(file);
      if (variant.creates) {
        await vscode.window.showTextDocument(address({ uri, verdict, file }), { preview: false });
        continue;
      }
      const title = `${now.path.split("/").at(-1) ?? file}: ${variant.label}, ${brief(variant)}`;
      const options = { preview: false, selection: await firstDifference(now, text) };
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

  /** Has the server apply a variant; what shows its difference is closed then, and what was changed is shown. */
  async apply(uri: string, verdict: string): Promise<void> {
    const change = await this.#change(uri, verdict);
    if ((await this.server.run("apply", uri, verdict)) !== true) return;
    for (const tab of vscode.window.tabGroups.all.flatMap((group) => group.tabs)) {
      if (tab.input instanceof vscode.TabInputTextDiff && read(tab.input.modified)?.verdict === verdict) {
        await vscode.window.tabGroups.close(tab);
      }
    }
    const { file, selection } = change ?? { file: vscode.Uri.parse(uri) };
    await this.showApplied(file, verdict, selection);
  }

  /** Brings into view what a variant has changed, and says so. */
  async showApplied(file: vscode.Uri, verdict: string, selection?: vscode.Range): Promise<void> {
    this.news.seen(verdict);
    await vscode.window.showTextDocument(file, { preview: false, ...(selection && { selection }) });
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

  /** Where a variant begins to change the first of its files; undefined where it cannot be applied to what is there. */
  async #change(uri: string, verdict: string): Promise<{ file: vscode.Uri; selection?: vscode.Range } | undefined> {
    try {
      const { creates, files } = await this.#texts(uri, verdict);
      if (creates || files[0] === undefined) return undefined;
      const file = vscode.Uri.parse(files[0].uri);
      return { file, selection: await firstDifference(file, files[0].text) };
    } catch {
      return undefined; // to apply it says why
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

/** The start of the line where a file begins to differ from a text: what stands left of the difference is seen too. */
async function firstDifference(file: vscode.Uri, text: string): Promise<vscode.Range> {
  const document = await vscode.workspace.openTextDocument(file);
  const before = document.getText();
  let at = 0;
  while (at < before.length && before[at] === text[at]) at++;
  const { line } = document.positionAt(at);
  return new vscode.Range(line, 0, line, 0);
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
