import * as vscode from "vscode";
import type { Jobs } from "./jobs";
import type { Server } from "./server";

const ICONS = {
  off: "circle-outline",
  starting: "sync~spin",
  running: "zap",
  missing: "warning",
  untrusted: "workspace-untrusted",
  failed: "error",
};

/** The item in the status bar: how the server is, and what it is doing. */
export class StatusItem implements vscode.Disposable {
  readonly #item = vscode.window.createStatusBarItem("kernelLsp.status", vscode.StatusBarAlignment.Left, 10);
  readonly #subscriptions: vscode.Disposable[];

  constructor(
    readonly server: Server,
    readonly jobs: Jobs,
  ) {
    this.#item.name = "Kernel LSP";
    this.#item.command = "kernelLsp.menu";
    this.#subscriptions = [
      server.onDidChange(() => {
        this.#show();
      }),
      jobs.onDidChange(() => {
        this.#show();
      }),
    ];
  }

  dispose(): void {
    for (const one of [...this.#subscriptions, this.#item]) one.dispose();
  }

  #show(): void {
    const { state } = this.server;
    const running = this.jobs.underWay;
    void vscode.commands.executeCommand("setContext", "kernelLsp.busy", running.length > 0);
    if (state === "off") {
      this.#item.hide();
      return;
    }
    const doing = running.length === 1 ? running[0]?.title : `${running.length} jobs`;
    const troubled = typeof this.server.status?.trouble === "string";
    const icon = troubled ? "warning" : ICONS[state];
    this.#item.text = running.length > 0 ? `$(sync~spin) ${doing ?? ""}` : `$(${icon}) Kernel LSP`;
    const failing = state === "missing" || state === "failed" || troubled;
    this.#item.backgroundColor = failing ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
    this.#item.tooltip = this.#tooltip();
    this.#item.accessibilityInformation = {
      label: `Kernel LSP, ${state}${troubled ? ", not compiling" : ""}${doing !== undefined && running.length > 0 ? `, ${doing}` : ""}`,
    };
    this.#item.show();
  }

  #tooltip(): vscode.MarkdownString {
    const text = new vscode.MarkdownString(undefined, true);
    for (const [name, value] of describe(this.server))
      text.appendMarkdown(`**${name}**: `).appendText(value).appendMarkdown("  \n");
    for (const job of this.jobs.underWay) text.appendMarkdown("\n\n$(sync) ").appendText(`${job.title}: ${job.text}`);
    return text;
  }
}

/** A menu of what can be done with the server as it is. */
export async function showMenu(server: Server, jobs: Jobs): Promise<void> {
  const entry = (
    label: string,
    command: string,
    detail?: string,
  ): vscode.QuickPickItem & { run: () => Thenable<unknown> } => ({
    label,
    ...(detail === undefined ? {} : { detail }),
    run: () => vscode.commands.executeCommand(command),
  });
  const stops = jobs.underWay.map((job) => ({
    label: `$(debug-stop) Stop: ${job.title}`,
    detail: job.text,
    run: () => jobs.stop(job.id),
  }));
  const items = [...stops];
  const all: (vscode.QuickPickItem & { run: () => Thenable<unknown> })[] = [
    ...items,
    ...(server.state === "missing"
      ? [entry("$(cloud-download) Install Server", "kernelLsp.install", "A Python environment of its own")]
      : []),
    ...(server.state === "untrusted" ? [entry("$(workspace-untrusted) Manage Trust", "workbench.trust.manage")] : []),
    entry(
      "$(list-tree) Kernels",
      "kernelLsp.kernels.focus",
      "Facts, verdicts and variants of the kernels in this workspace",
    ),
    ...(server.isRunning
      ? [
          entry("$(beaker) Check This File", "kernelLsp.check"),
          entry("$(checklist) Check All", "kernelLsp.checkAll", "Every file of the workspace that has a workload"),
          entry("$(workspace-trusted) Trust This File's Folder", "kernelLsp.trust"),
        ]
      : []),
    entry("$(settings-gear) Settings", "kernelLsp.settings"),
    {
      label: "$(file-binary) Choose Server Path",
      detail: "Which kernel-lsp is started",
      run: () => vscode.commands.executeCommand("workbench.action.openSettings", "@id:kernel-lsp.server.path"),
    },
    entry("$(debug-restart) Restart Server", "kernelLsp.restart", server.command),
    entry("$(output) Show Log", "kernelLsp.log"),
    ...(server.command !== "" && vscode.workspace.isTrusted
      ? [entry("$(pulse) Doctor", "kernelLsp.doctor", "What this machine has and what it lacks")]
      : []),
    entry(
      "$(report) Report a Problem",
      "kernelLsp.report",
      "A text with versions and the log, which nobody gets but you",
    ),
    entry("$(mortar-board) The First Five Minutes", "kernelLsp.walkthrough"),
    entry("$(book) Documentation", "kernelLsp.documentation", "What the extension does"),
  ];
  const picked = await vscode.window.showQuickPick(all, { title: "Kernel LSP", placeHolder: brief(server) });
  await picked?.run();
}

function brief(server: Server): string {
  if (server.status === undefined) return server.problem || `The server is ${server.state}.`;
  const { gpu, version, model, trouble } = server.status;
  if (trouble !== null) return `Not compiled: ${trouble}`;
  return `${version} · ${gpu === null ? "no GPU" : gpu.name} · ${model ?? "no model"}`;
}

function describe(server: Server): [string, string][] {
  const { status } = server;
  const found: [string, string][] = [
    ["Server", server.problem || (server.state === "running" ? `running, ${status?.version ?? ""}` : server.state)],
  ];
  if (status !== undefined) {
    if (status.trouble !== null) found.push(["Not compiled", status.trouble]);
    found.push([
      "GPU",
      status.gpu === null
        ? "none; kernels run on the emulator, nothing is timed"
        : `${status.gpu.name} (${status.gpu.arch})`,
    ]);
    found.push(["Model", status.model ?? "none is served"]);
    found.push(["Proposers", status.proposers.join(", ")]);
    found.push(["Found by", server.where]);
  }
  if (!vscode.workspace.isTrusted)
    found.push(["Trust", "this workspace is not trusted: kernels are parsed, nothing is compiled or run"]);
  return found;
}
