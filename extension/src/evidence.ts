import * as vscode from "vscode";
import type { EvidencePage } from "./protocol";
import type { Server } from "./server";
import type { Variants } from "./variants";

/** What the server's page asks for; `text` is what is to be copied. */
interface Asked {
  asks: "instructions" | "diff" | "apply" | "copy" | "text";
  text: string;
}

/** Panels that show the server's pages of evidence, one for each verdict. */
export class EvidencePanels implements vscode.Disposable {
  readonly #panels = new Map<string, vscode.WebviewPanel>();

  constructor(
    readonly server: Server,
    readonly variants: Variants,
  ) {}

  dispose(): void {
    for (const panel of this.#panels.values()) panel.dispose();
  }

  /** Shows a verdict's evidence; `uri` is the kernel file that it is about. */
  async show(verdict: string, uri?: string): Promise<void> {
    const place = uri === undefined ? {} : { textDocument: { uri } };
    const found = await this.server.request("evidence", { verdict, ...place });
    this.variants.news.seen(found.verdict);
    const before = this.#panels.get(found.verdict);
    if (before !== undefined) {
      before.reveal();
      return;
    }
    const title = `Evidence: ${found.label}`;
    const panel = vscode.window.createWebviewPanel("kernelLsp.evidence", title, vscode.ViewColumn.Active, {
      enableScripts: true, // the page allows its own alone, by a nonce
      localResourceRoots: [],
      enableFindWidget: true,
      retainContextWhenHidden: true,
    });
    this.#panels.set(found.verdict, panel);
    panel.onDidDispose(() => this.#panels.delete(found.verdict));
    panel.webview.onDidReceiveMessage((asked: Asked) => {
      this.#answer(asked, found, uri, panel.webview).catch((error: unknown) => {
        this.server.complain(error);
      });
    });
    panel.webview.html = found.page;
  }

  /** Lets the user pick one of a file's verdicts; shows it at once where there is just one. */
  async pick(uri: string): Promise<void> {
    const items = (await this.variants.list(uri)).map(({ verdict, title, label }) => ({
      label: title,
      description: label,
      verdict,
    }));
    const { files } = await this.server.request("kernels", {});
    const last = files.find((file) => file.uri === uri)?.last;
    if (last !== null && last !== undefined && items.every((one) => one.verdict !== last.verdict)) {
      items.push({ label: `Last verdict: ${last.outcome}`, description: last.label, verdict: last.verdict });
    }
    if (items.length === 0) {
      void vscode.window.showInformationMessage("No version of this file was judged yet.");
      return;
    }
    const picked = items.length === 1 ? items[0] : await vscode.window.showQuickPick(items, { title: "Evidence" });
    if (picked !== undefined) await this.show(picked.verdict, uri);
  }

  async #answer(
    asked: Asked,
    { verdict, markdown }: EvidencePage,
    uri: string | undefined,
    webview: vscode.Webview,
  ): Promise<void> {
    switch (asked.asks) {
      case "instructions":
        await webview.postMessage(await this.#instructions(verdict, uri));
        break;
      case "diff":
        if (uri !== undefined) await this.variants.showDifference(uri, verdict);
        break;
      case "apply":
        if (uri !== undefined) await this.variants.apply(uri, verdict);
        break;
      case "copy":
        await vscode.env.clipboard.writeText(asked.text);
        vscode.window.setStatusBarMessage("$(check) Copied", 3000);
        break;
      case "text": {
        const document = await vscode.workspace.openTextDocument({ language: "markdown", content: markdown });
        await vscode.window.showTextDocument(document);
      }
    }
  }

  /** The part of the page for which both versions are compiled, or why there is none. */
  async #instructions(verdict: string, uri: string | undefined): Promise<{ html: string } | { problem: string }> {
    if (uri === undefined) return { problem: "The file that they are of is not known." };
    try {
      return { html: (await this.server.request("opcodes", { textDocument: { uri }, verdict })).section };
    } catch (error) {
      return { problem: error instanceof Error ? error.message : String(error) };
    }
  }
}
