import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { Opcodes, VerdictEvidence } from "./protocol";
import type { Server } from "./server";
import type { Variants } from "./variants";

/** What the page may ask for. */
export type Asked = "ready" | "diff" | "apply" | "copy" | "text";

/** What the page is sent. */
export type Sent = { evidence: VerdictEvidence; applies: boolean } | { opcodes: Opcodes } | { noOpcodes: string };

/** Panels that show what verdicts rest on, one for each verdict. */
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
    const id = found.verdict.id;
    const before = this.#panels.get(id);
    if (before !== undefined) {
      before.reveal();
      return;
    }
    const media = vscode.Uri.joinPath(this.server.context.extensionUri, "media");
    const dist = vscode.Uri.joinPath(this.server.context.extensionUri, "dist");
    const title = `Evidence: ${found.verdict.evidence.candidate_label}`;
    const options = {
      enableScripts: true,
      localResourceRoots: [media, dist],
      enableFindWidget: true,
      retainContextWhenHidden: true,
    };
    const panel = vscode.window.createWebviewPanel("kernelLsp.evidence", title, vscode.ViewColumn.Active, options);
    this.#panels.set(id, panel);
    panel.onDidDispose(() => this.#panels.delete(id));
    const send = (message: Sent): void => void panel.webview.postMessage(message);
    panel.webview.onDidReceiveMessage((asked: Asked) => {
      this.#answer(asked, found, uri, send).catch((error: unknown) => {
        this.server.complain(error);
      });
    });
    panel.webview.html = page(panel.webview, dist, media, title);
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
    found: VerdictEvidence,
    uri: string | undefined,
    send: (message: Sent) => void,
  ): Promise<void> {
    const { id, evidence } = found.verdict;
    switch (asked) {
      case "ready": {
        const offers = uri === undefined ? [] : await this.variants.list(uri);
        send({ evidence: found, applies: offers.some((one) => one.verdict === id && one.fits) });
        if (uri !== undefined) send(await this.#opcodes(id, uri));
        break;
      }
      case "diff":
        if (uri !== undefined) await this.variants.showDifference(uri, id);
        break;
      case "apply":
        if (uri !== undefined) await this.variants.apply(uri, id);
        break;
      case "copy":
        await vscode.env.clipboard.writeText(evidence.command);
        vscode.window.setStatusBarMessage("$(check) Copied", 3000);
        break;
      case "text": {
        const document = await vscode.workspace.openTextDocument({ language: "markdown", content: found.markdown });
        await vscode.window.showTextDocument(document);
      }
    }
  }

  async #opcodes(verdict: string, uri: string): Promise<Sent> {
    try {
      return { opcodes: await this.server.request("opcodes", { textDocument: { uri }, verdict }) };
    } catch (error) {
      return { noOpcodes: error instanceof Error ? error.message : String(error) };
    }
  }
}

function page(webview: vscode.Webview, dist: vscode.Uri, media: vscode.Uri, title: string): string {
  const nonce = randomBytes(16).toString("hex");
  const script = webview.asWebviewUri(vscode.Uri.joinPath(dist, "evidence.js")).toString();
  const style = webview.asWebviewUri(vscode.Uri.joinPath(media, "evidence.css")).toString();
  const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<title>${title.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</title>
<link rel="stylesheet" href="${style}">
</head>
<body>
<main id="page" aria-busy="true"></main>
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
}
