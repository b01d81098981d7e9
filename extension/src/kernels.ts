import * as vscode from "vscode";
import type { Jobs } from "./jobs";
import type { FileRow, Job, KernelRow } from "./protocol";
import type { Server } from "./server";
import { brief } from "./variants";

const PAUSE_MS = 400;

/** What a row of the view stands for; commands of the view are given one. */
export type Row =
  | { kind: "file"; file: FileRow }
  | { kind: "kernel"; file: FileRow; kernel: KernelRow }
  | { kind: "job"; job: Job }
  | { kind: "verdict"; uri: string; verdict: string; label: string; detail: string; icon: string; tooltip: string }
  | { kind: "fact"; label: string; detail: string; icon: string; tooltip: string };

/** The kernels of the workspace: facts, last verdict, best variant, what got worse, and what goes on. */
export class KernelsView implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  readonly #changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.#changed.event;
  readonly #view: vscode.TreeView<Row>;
  readonly #subscriptions: vscode.Disposable[];
  #files: FileRow[] | undefined;
  #pause: NodeJS.Timeout | undefined;
  #shownJobs = "";

  constructor(
    readonly server: Server,
    readonly jobs: Jobs,
  ) {
    this.#view = vscode.window.createTreeView("kernelLsp.kernels", { treeDataProvider: this, showCollapseAll: true });
    this.#subscriptions = [
      this.#view,
      this.#view.onDidChangeVisibility(({ visible }) => {
        if (visible) void server.ensure();
      }),
      server.onDidChange(() => {
        this.refresh();
      }),
      jobs.onDidChange(() => {
        this.#showJobs();
      }),
      jobs.onDidEnd(() => {
        this.refreshSoon();
      }),
      vscode.workspace.onDidSaveTextDocument(() => {
        this.refreshSoon();
      }),
      vscode.languages.onDidChangeDiagnostics(({ uris }) => {
        if (this.#view.visible && uris.some((uri) => this.#files?.some((file) => file.uri === uri.toString())))
          this.refreshSoon();
      }),
    ];
  }

  dispose(): void {
    clearTimeout(this.#pause);
    for (const one of [...this.#subscriptions, this.#changed]) one.dispose();
  }

  /** Asks the server anew. */
  refresh(): void {
    this.#files = undefined;
    this.#changed.fire();
  }

  refreshSoon(): void {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.refresh();
    }, PAUSE_MS);
  }

  async getChildren(row?: Row): Promise<Row[]> {
    if (row === undefined) return await this.#roots();
    if (row.kind === "file") return row.file.kernels.map((kernel) => ({ kind: "kernel", file: row.file, kernel }));
    return row.kind === "kernel" ? [...this.#jobsOf(row), ...detailsOf(row.file, row.kernel)] : [];
  }

  getTreeItem(row: Row): vscode.TreeItem {
    switch (row.kind) {
      case "file":
        return fileItem(row.file);
      case "kernel":
        return kernelItem(row.file, row.kernel, this.#jobsOf(row).length > 0);
      case "job":
        return item(row.job.title, row.job.text, "sync~spin", row.job.text, "job");
      case "verdict":
      case "fact":
        return item(row.label, row.detail, row.icon, row.tooltip, row.kind);
    }
  }

  async #roots(): Promise<Row[]> {
    if (this.server.state !== "running") return [];
    try {
      this.#files ??= (await this.server.request<{ files: FileRow[] }>("kernels")).files;
    } catch (error) {
      this.server.log.warn(`the kernels are not known: ${String(error)}`);
      return [];
    }
    const everywhere = this.jobs.underWay.filter((job) => job.kernel === null);
    return [
      ...everywhere.map((job): Row => ({ kind: "job", job })),
      ...this.#files.map((file): Row => ({ kind: "file", file })),
    ];
  }

  #jobsOf(row: { file: FileRow; kernel: KernelRow }): Row[] {
    const mine = this.jobs.underWay.filter((job) => job.uri === row.file.uri && job.kernel === row.kernel.name);
    return mine.map((job) => ({ kind: "job", job }));
  }

  #showJobs(): void {
    const now = this.jobs.underWay.map((job) => `${job.id}: ${job.text}`).join("\n");
    if (now === this.#shownJobs) return;
    this.#shownJobs = now;
    this.#changed.fire();
  }
}

function fileItem(file: FileRow): vscode.TreeItem {
  const uri = vscode.Uri.parse(file.uri);
  const found = new vscode.TreeItem(uri, vscode.TreeItemCollapsibleState.Expanded);
  const relative = vscode.workspace.asRelativePath(uri).split("/").slice(0, -1).join("/");
  found.description = [relative, file.workload ? "" : "no workload", file.trusted ? "" : "not trusted"]
    .filter(Boolean)
    .join(" · ");
  found.tooltip = new vscode.MarkdownString()
    .appendText(uri.fsPath)
    .appendText(file.problem === null ? "" : `\n\n${file.problem}`)
    .appendText(file.measured === null ? "" : `\n\nAs it stands: ${file.measured}`);
  found.contextValue = "file";
  found.iconPath = vscode.ThemeIcon.File;
  found.id = file.uri;
  return found;
}

function kernelItem(file: FileRow, kernel: KernelRow, busy: boolean): vscode.TreeItem {
  const found = new vscode.TreeItem(kernel.name, vscode.TreeItemCollapsibleState.Collapsed);
  const parts = [];
  if (kernel.best !== null) parts.push(`${kernel.best.speedup.toFixed(2)}x on offer`);
  else if (kernel.facts !== null) parts.push(`${kernel.facts.registers} regs`);
  if (kernel.drift.length > 0) parts.push("worse than its baseline");
  found.description = parts.join(" · ");
  found.contextValue = ["kernel", busy ? "busy" : file.workload ? "idle" : "", kernel.variants > 0 ? "variants" : ""]
    .filter(Boolean)
    .join(" ");
  found.iconPath = busy
    ? new vscode.ThemeIcon("sync~spin")
    : kernel.drift.length > 0
      ? new vscode.ThemeIcon("warning", new vscode.ThemeColor("list.warningForeground"))
      : new vscode.ThemeIcon("symbol-function", new vscode.ThemeColor("symbolIcon.functionForeground"));
  const at = new vscode.Range(kernel.line, 0, kernel.line, 0);
  found.command = {
    title: "Open",
    command: "vscode.open",
    arguments: [vscode.Uri.parse(file.uri), { selection: at, preview: true }],
  };
  found.id = `${file.uri}#${kernel.name}`;
  return found;
}

function detailsOf(file: FileRow, kernel: KernelRow): Row[] {
  const rows: Row[] = [];
  if (kernel.best !== null) {
    const { verdict, label, title } = kernel.best;
    rows.push({
      kind: "verdict",
      uri: file.uri,
      verdict,
      label: brief(kernel.best),
      detail: label,
      icon: "verified",
      tooltip: title,
    });
  }
  if (file.last !== null && file.last.verdict !== kernel.best?.verdict) {
    const { verdict, outcome, label } = file.last;
    rows.push({
      kind: "verdict",
      uri: file.uri,
      verdict,
      label: `Last: ${outcome}`,
      detail: label,
      icon: "law",
      tooltip: `The last verdict on this file, on ${label}`,
    });
  }
  for (const said of kernel.drift) {
    rows.push({ kind: "fact", label: "Worse", detail: said.replaceAll("`", ""), icon: "arrow-down", tooltip: said });
  }
  if (kernel.facts === null) {
    const why = file.trusted ? "open the file to have it compiled" : "this workspace is not trusted";
    rows.push({ kind: "fact", label: "Not compiled yet", detail: why, icon: "circle-outline", tooltip: why });
    return rows;
  }
  const { registers, shared_bytes: shared, spill_bytes: spills, occupancy, limiter, name } = kernel.facts;
  const fact = (label: string, detail: string, icon: string, tooltip: string): void => {
    rows.push({ kind: "fact", label, detail, icon, tooltip: `${tooltip}, in ${name}` });
  };
  fact("Registers", String(registers), "list-ordered", "Registers of each thread");
  if (shared > 0) fact("Shared memory", bytes(shared), "database", "Shared memory of each block");
  if (spills !== null && spills > 0)
    fact("Spills", bytes(spills), "warning", "Registers kept in local memory, in bytes of each thread");
  if (occupancy !== null)
    fact(
      "Occupancy",
      `${percent(occupancy)}${limiter === null ? "" : `, limited by ${limiter}`}`,
      "dashboard",
      "Warps that can be resident on a multiprocessor",
    );
  return rows;
}

function item(label: string, detail: string, icon: string, tooltip: string, context: string): vscode.TreeItem {
  const found = new vscode.TreeItem(label);
  found.description = detail;
  found.iconPath = new vscode.ThemeIcon(icon);
  found.tooltip = tooltip;
  found.contextValue = context;
  return found;
}

function bytes(count: number): string {
  return count >= 1024 ? `${+(count / 1024).toFixed(1)} KiB` : `${count} B`;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
