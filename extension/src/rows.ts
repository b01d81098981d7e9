import * as vscode from "vscode";
import type { FileRow, JobRecord, KernelRow } from "./protocol";
import { brief } from "./variants";

const MANY = 8; // kernels of a file, which are shown when they are asked for

/** A row of the view of kernels; commands of the view are given one. */
export type Row = Subject & { id: string; item: vscode.TreeItem; children: Row[] };

type Subject =
  | { kind: "file"; file: FileRow }
  | { kind: "kernel"; file: FileRow; kernel: KernelRow }
  | { kind: "job"; job: JobRecord }
  | { kind: "verdict"; uri: string; verdict: string }
  | { kind: "fact" };

/** What the view shows of the kernels that the server knows and of its jobs. */
export function rowsOf(files: FileRow[], jobs: JobRecord[]): Row[] {
  const elsewhere = jobs.filter((job) => !files.some((file) => file.uri === job.uri));
  return apart([...elsewhere.map(jobRow), ...files.map((file) => fileRow(file, jobs))]);
}

/** The fresh rows, each the object that stood for the same before; `changed` gains those that are shown otherwise now. */
export function merge(before: Row[], fresh: Row[], changed: Row[]): Row[] {
  const known = new Map(before.map((row) => [row.id, row]));
  return fresh.map((row) => {
    const old = known.get(row.id);
    if (old === undefined) return row;
    const inside: Row[] = [];
    const children = merge(old.children, row.children, inside);
    const same = JSON.stringify(old.item) === JSON.stringify(row.item) && haveSameIds(old.children, children);
    changed.push(...(same ? inside : [old]));
    return Object.assign(old, row, { children });
  });
}

export function haveSameIds(some: Row[], others: Row[]): boolean {
  return some.length === others.length && some.every((row, at) => row.id === others[at]?.id);
}

/** Rows with the same id, such as overloads of a kernel, told apart. */
function apart(rows: Row[]): Row[] {
  const counts = new Map<string, number>();
  for (const row of rows) {
    const count = (counts.get(row.id) ?? 0) + 1;
    counts.set(row.id, count);
    if (count > 1) row.id = `${row.id}#${count}`;
    row.item.id = row.id;
  }
  return rows;
}

function fileRow(file: FileRow, jobs: JobRecord[]): Row {
  const uri = vscode.Uri.parse(file.uri);
  const { Collapsed, Expanded } = vscode.TreeItemCollapsibleState;
  const many = file.kernels.length > MANY;
  const item = new vscode.TreeItem(uri, many ? Collapsed : Expanded);
  const relative = vscode.workspace.asRelativePath(uri).split("/").slice(0, -1).join("/");
  item.description = [
    relative,
    many ? `${file.kernels.length} kernels` : "",
    file.checked ?? (file.kernels.length === 0 ? (file.problem ?? "") : file.workload ? "" : "no workload"),
    file.trusted ? "" : "not trusted",
  ]
    .filter(Boolean)
    .join(" · ");
  item.tooltip = new vscode.MarkdownString()
    .appendText(uri.fsPath)
    .appendText(file.problem === null ? "" : `\n\n${file.problem}`)
    .appendText(file.measured === null ? "" : `\n\nAs it stands: ${file.measured}`);
  item.contextValue = "file";
  item.iconPath =
    file.passed === null
      ? vscode.ThemeIcon.File
      : file.passed
        ? new vscode.ThemeIcon("pass", new vscode.ThemeColor("testing.iconPassed"))
        : new vscode.ThemeIcon("error", new vscode.ThemeColor("testing.iconFailed"));
  const mine = jobs.filter((job) => job.uri === file.uri);
  const ofAll = mine.filter((job) => !file.kernels.some((kernel) => kernel.name === job.kernel));
  const modules = file.module === null ? [] : [moduleRow(uri, file.module)];
  const children = apart([
    ...ofAll.map(jobRow),
    ...modules,
    ...file.kernels.map((kernel) => kernelRow(file, kernel, mine)),
  ]);
  return { kind: "file", file, id: file.uri, item, children };
}

/** A plain PyTorch module; above it in the text stands what can be done. */
function moduleRow(uri: vscode.Uri, line: number): Row {
  const about = "A plain PyTorch module, for which a model can write a kernel";
  const item = leaf("Model", "PyTorch module", "symbol-class", about, "module");
  item.command = open(uri, line);
  return { kind: "fact", id: `${uri.toString()}#Model`, item, children: [] };
}

function open(uri: vscode.Uri, line: number): vscode.Command {
  const selection = new vscode.Range(line, 0, line, 0);
  return { title: "Open", command: "vscode.open", arguments: [uri, { selection, preview: true }] };
}

function kernelRow(file: FileRow, kernel: KernelRow, jobs: JobRecord[]): Row {
  const mine = jobs.filter((job) => job.kernel === kernel.name);
  const busy = mine.length > 0;
  const item = new vscode.TreeItem(kernel.name, vscode.TreeItemCollapsibleState.Collapsed);
  const parts = [];
  if (kernel.best !== null) parts.push(`${kernel.best.speedup.toFixed(2)}x on offer`);
  else if (kernel.facts !== null) parts.push(`${kernel.facts.registers} regs`);
  if (kernel.drift.length > 0) parts.push("worse than its baseline");
  item.description = parts.join(" · ");
  item.contextValue = ["kernel", busy ? "busy" : file.workload ? "idle" : "", kernel.variants > 0 ? "variants" : ""]
    .filter(Boolean)
    .join(" ");
  item.iconPath = busy
    ? new vscode.ThemeIcon("sync~spin")
    : kernel.drift.length > 0
      ? new vscode.ThemeIcon("warning", new vscode.ThemeColor("list.warningForeground"))
      : new vscode.ThemeIcon("symbol-function", new vscode.ThemeColor("symbolIcon.functionForeground"));
  item.command = open(vscode.Uri.parse(file.uri), kernel.line);
  const id = `${file.uri}#${kernel.name}`;
  const children = apart([...mine.map(jobRow), ...verdictRows(id, file, kernel), ...factRows(id, file, kernel)]);
  return { kind: "kernel", file, kernel, id, item, children };
}

function jobRow(job: JobRecord): Row {
  const item = leaf(job.title, job.text, "sync~spin", job.text, "job");
  return { kind: "job", job, id: job.id, item, children: [] };
}

function verdictRows(kernelId: string, file: FileRow, kernel: KernelRow): Row[] {
  const rows: Row[] = [];
  const add = (name: string, verdict: string, item: vscode.TreeItem): void => {
    rows.push({ kind: "verdict", uri: file.uri, verdict, id: `${kernelId}#${name}`, item, children: [] });
  };
  if (kernel.best !== null) {
    const { verdict, label, title, pending } = kernel.best;
    add("best", verdict, leaf(brief(kernel.best), label, pending ? "watch" : "verified", title, "verdict"));
  }
  if (file.last !== null && file.last.verdict !== kernel.best?.verdict) {
    const { verdict, outcome, label } = file.last;
    const about = `The last verdict on this file, on ${label}`;
    add("last", verdict, leaf(`Last: ${outcome}`, label, "law", about, "verdict"));
  }
  return rows;
}

function factRows(kernelId: string, file: FileRow, kernel: KernelRow): Row[] {
  const rows: Row[] = [];
  const add = (label: string, detail: string, icon: string, tooltip: string): void => {
    const item = leaf(label, detail, icon, tooltip, "fact");
    rows.push({ kind: "fact", id: `${kernelId}#${label}`, item, children: [] });
  };
  for (const said of kernel.drift) add("Worse", said.replaceAll("`", ""), "arrow-down", said);
  if (kernel.facts === null) {
    const why = file.trusted ? "open the file to have it compiled" : "this workspace is not trusted";
    add("Not compiled yet", why, "circle-outline", why);
    return rows;
  }
  const { registers, shared_bytes: shared, spill_bytes: spills, occupancy, limiter, name } = kernel.facts;
  const fact = (label: string, detail: string, icon: string, tooltip: string): void => {
    add(label, detail, icon, `${tooltip}, in ${name}`);
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

function leaf(label: string, detail: string, icon: string, tooltip: string, context: string): vscode.TreeItem {
  const item = new vscode.TreeItem(label);
  item.description = detail;
  item.iconPath = new vscode.ThemeIcon(icon);
  item.tooltip = tooltip;
  item.contextValue = context;
  return item;
}

function bytes(count: number): string {
  return count >= 1024 ? `${+(count / 1024).toFixed(1)} KiB` : `${count} B`;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
