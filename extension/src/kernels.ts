import * as vscode from "vscode";
import { hasEnded, type Jobs } from "./jobs";
import type { News } from "./news";
import type { FileRow } from "./protocol";
import { haveSameIds, merge, type Row, rowsOf } from "./rows";
import type { Server } from "./server";

const PAUSE_MS = 400;

/**
 * The kernels of the workspace: facts, checks, last verdict, best variant, what got worse, and what goes on. Its badge
 * counts what was found and not looked at.
 *
 * VS Code is told only of rows that have changed, once it can have them at once: where everything is fetched anew while
 * it still asks for children, it shows rows without any.
 */
export class KernelsView implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  readonly #changed = new vscode.EventEmitter<Row[] | undefined>();
  readonly onDidChangeTreeData = this.#changed.event;
  readonly #view: vscode.TreeView<Row>;
  readonly #subscriptions: vscode.Disposable[];
  #files: FileRow[] = [];
  #rows: Row[] = [];
  #outdated = true;
  #asking = false;
  #pause: NodeJS.Timeout | undefined;

  constructor(
    readonly server: Server,
    readonly jobs: Jobs,
    news: News,
  ) {
    this.#view = vscode.window.createTreeView("kernelLsp.kernels", { treeDataProvider: this, showCollapseAll: true });
    this.#subscriptions = [
      this.#view,
      this.#view.onDidChangeVisibility(({ visible }) => {
        if (visible) void server.ensure();
        void this.#update();
        this.#reveal();
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.#reveal();
      }),
      news.onDidChange(() => {
        const { count } = news;
        const what = count === 1 ? "a faster variant" : `${count} faster variants`;
        this.#view.badge = count === 0 ? undefined : { value: count, tooltip: `${what} to look at` };
      }),
      server.onDidChange(() => {
        this.refresh();
      }),
      jobs.onDidChange((job) => {
        this.#show();
        if (job !== undefined && hasEnded(job)) this.refreshSoon();
      }),
      vscode.workspace.onDidSaveTextDocument(() => {
        this.refreshSoon();
      }),
      vscode.languages.onDidChangeDiagnostics(({ uris }) => {
        if (uris.some((uri) => this.#files.some((file) => file.uri === uri.toString()))) this.refreshSoon();
      }),
    ];
  }

  dispose(): void {
    clearTimeout(this.#pause);
    for (const one of [...this.#subscriptions, this.#changed]) one.dispose();
  }

  /** Asks the server anew: at once, or when the view is to be seen. */
  refresh(): void {
    this.#outdated = true;
    void this.#update();
  }

  refreshSoon(): void {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.refresh();
    }, PAUSE_MS);
  }

  /** Lets the user pick one of all kernels by its name, those in folded files too, and goes to it. */
  async find(): Promise<void> {
    const itemsOf = (file: FileRow) =>
      file.kernels.map((kernel) => ({
        label: `${mark(file)}${kernel.name}`,
        description: vscode.workspace.asRelativePath(vscode.Uri.parse(file.uri)),
        file,
        kernel,
      }));
    const items = this.server.request("kernels", {}).then(({ files }) => files.flatMap(itemsOf));
    const options = { title: "Kernels", placeHolder: "Pick one to go to it", matchOnDescription: true };
    const picked = await vscode.window.showQuickPick(items, options);
    if (picked === undefined) return;
    const selection = new vscode.Range(picked.kernel.line, 0, picked.kernel.line, 0);
    await vscode.window.showTextDocument(vscode.Uri.parse(picked.file.uri), { selection });
    const row = this.#rows
      .flatMap((one) => one.children)
      .find(
        (one) => one.kind === "kernel" && one.file.uri === picked.file.uri && one.kernel.line === picked.kernel.line,
      );
    if (row !== undefined && this.#view.visible) await this.#view.reveal(row, { select: true });
  }

  getChildren(row?: Row): Row[] {
    return row === undefined ? this.#rows : row.children;
  }

  getParent(row: Row): Row | undefined {
    return this.#rows.find((file) => file.children.some((one) => one === row || one.children.includes(row)));
  }

  getTreeItem(row: Row): vscode.TreeItem {
    return row.item;
  }

  async #update(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    while (this.#outdated && this.#view.visible) {
      this.#outdated = false;
      this.#files = await this.#ask();
    }
    this.#asking = false;
    const nothing = this.server.isRunning && !this.#outdated && this.#files.length === 0;
    void vscode.commands.executeCommand("setContext", "kernelLsp.noKernels", nothing);
    this.#show();
    this.#reveal();
  }

  /** Selects the file that is looked at, unless something of it is selected already. */
  #reveal(): void {
    const uri = vscode.window.activeTextEditor?.document.uri.toString();
    const row = this.#rows.find((one) => one.kind === "file" && one.file.uri === uri);
    if (row === undefined || !this.#view.visible || this.#view.selection.some((one) => fileOf(one) === uri)) return;
    this.#view.reveal(row, { select: true }).then(undefined, () => undefined); // it may be gone by now
  }

  async #ask(): Promise<FileRow[]> {
    if (!this.server.isRunning) return [];
    try {
      return (await this.server.request("kernels", {})).files;
    } catch (error) {
      this.server.log.warn(`the kernels are not known: ${String(error)}`);
      return [];
    }
  }

  #show(): void {
    const changed: Row[] = [];
    const before = this.#rows;
    this.#rows = merge(before, rowsOf(this.#files, this.jobs.underWay), changed);
    if (!haveSameIds(before, this.#rows)) this.#changed.fire(undefined);
    else if (changed.length > 0) this.#changed.fire(changed);
  }
}

function mark(file: FileRow): string {
  if (file.passed === null) return "";
  return file.passed ? "$(pass) " : "$(error) ";
}

function fileOf(row: Row): string | undefined {
  if (row.kind === "verdict") return row.uri;
  return row.kind === "file" || row.kind === "kernel" ? row.file.uri : undefined;
}
