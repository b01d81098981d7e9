import * as vscode from "vscode";
import { holdsKernels } from "./files";
import type { Jobs } from "./jobs";
import type { CheckedFinding, CheckedText, JobRecord } from "./protocol";
import type { Server } from "./server";

const PAUSE_MS = 400;

/**
 * Checks as tests: each file with a workload, its kernels, the cases of the workload and the families of inputs.
 *
 * Whichever way a file was checked, its result is shown: run from here, on save, from a lens, or in an earlier session.
 */
export class CheckTests implements vscode.Disposable {
  readonly #controller = vscode.tests.createTestController("kernelLsp.checks", "Kernel Checks");
  readonly #subscriptions: vscode.Disposable[];
  readonly #shown = new Map<string, string>();
  #pause: NodeJS.Timeout | undefined;
  /** Whether the Test Explorer has asked for the files of the workspace. */
  #isSeen = false;

  constructor(
    readonly server: Server,
    readonly jobs: Jobs,
  ) {
    const controller = this.#controller;
    controller.createRunProfile(
      "Check",
      vscode.TestRunProfileKind.Run,
      (request, token) => this.#run(request, token),
      true,
    );
    controller.resolveHandler = async (item) => {
      await server.ensure();
      this.#isSeen = true;
      if (item === undefined) await this.#list();
      else await this.#refresh(item);
    };
    controller.refreshHandler = () => this.#list();
    this.#subscriptions = [
      server.onDidChange(() => {
        this.#listSoon();
      }),
      jobs.onDidChange((job) => {
        if (job?.work === "check" && job.state === "done") this.#take(job.uri);
      }),
      vscode.languages.onDidChangeDiagnostics(({ uris }) => {
        for (const uri of uris) if (controller.items.get(uri.toString()) !== undefined) this.#take(uri.toString());
      }),
      vscode.workspace.onDidOpenTextDocument((document) => {
        if (holdsKernels(document)) this.#take(document.uri.toString());
      }),
      vscode.workspace.onDidSaveTextDocument(() => {
        this.#listSoon();
      }),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        const item = controller.items.get(document.uri.toString());
        if (item !== undefined && this.#shown.delete(item.id)) controller.invalidateTestResults(item);
      }),
    ];
  }

  dispose(): void {
    clearTimeout(this.#pause);
    for (const one of [...this.#subscriptions, this.#controller]) one.dispose();
  }

  #listSoon(): void {
    clearTimeout(this.#pause);
    if (!this.#isSeen) return; // to look through a large workspace takes the server a second
    this.#pause = setTimeout(() => {
      this.#list().catch((error: unknown) => {
        this.server.log.warn(`the checks are not known: ${String(error)}`);
      });
    }, PAUSE_MS);
  }

  /** Lists the files that can be checked. */
  async #list(): Promise<void> {
    if (!this.server.isRunning) return;
    const { files } = await this.server.request("kernels", {});
    const wanted = files.filter((file) => file.workload && file.trusted && file.kernels.length > 0);
    for (const [id] of this.#controller.items)
      if (!wanted.some((file) => file.uri === id)) this.#controller.items.delete(id);
    for (const file of wanted) {
      if (this.#controller.items.get(file.uri) !== undefined) continue;
      const item = this.#add(file.uri, file.kernels[0]?.line);
      this.#show(item, await this.#refresh(item));
    }
  }

  #add(file: string, line = 0): vscode.TestItem {
    const uri = vscode.Uri.parse(file);
    const item = this.#controller.createTestItem(file, vscode.workspace.asRelativePath(uri), uri);
    item.canResolveChildren = true;
    item.range = at(line);
    this.#controller.items.add(item);
    return item;
  }

  /** Fills a file's item with its kernels, cases and families as they were checked last. */
  async #refresh(item: vscode.TestItem): Promise<CheckedText | undefined> {
    if (item.uri === undefined || !this.server.isRunning) return undefined;
    const checked = await this.server.request("checks", { textDocument: { uri: item.uri.toString() } });
    const make = (parent: vscode.TestItem, kind: string, name: string, line?: number): vscode.TestItem => {
      const id = `${parent.id}#${kind}:${name}`;
      const one = parent.children.get(id) ?? this.#controller.createTestItem(id, name, item.uri);
      if (line !== undefined) one.range = at(line);
      return one;
    };
    const kernels = checked.kernels.map((kernel) => make(item, "kernel", kernel.name, kernel.line));
    const first = checked.kernels[0]?.line;
    const cases = [...new Set(checked.families.map((family) => family.case ?? ""))].map((name) => {
      const one = make(item, "case", name === "" ? "all cases" : name, first);
      const own = checked.families.filter((family) => (family.case ?? "") === name);
      one.children.replace([...new Set(own.map((family) => family.name))].map((family) => make(one, "family", family)));
      return one;
    });
    item.children.replace([...kernels, ...cases]);
    return checked;
  }

  /** Shows the last result of a file, also of one that is not listed yet. */
  #take(uri: string): void {
    const take = async (): Promise<void> => {
      let item = this.#controller.items.get(uri);
      if (item === undefined && this.server.isRunning) {
        const { reason, kernels } = await this.server.request("checks", { textDocument: { uri } });
        if (reason !== null && this.#controller.items.get(uri) === undefined) item = this.#add(uri, kernels[0]?.line);
      }
      if (item !== undefined) this.#show(item, await this.#refresh(item));
    };
    take().catch((error: unknown) => {
      this.server.log.warn(`the check of ${uri} is not known: ${String(error)}`);
    });
  }

  /** Shows a result, unless it is shown already or is of an older text. */
  #show(item: vscode.TestItem, checked: CheckedText | undefined): void {
    if (checked === undefined || checked.reason === null || checked.older) return;
    const seen = JSON.stringify(checked);
    if (this.#shown.get(item.id) === seen) return;
    this.#shown.set(item.id, seen);
    const run = this.#controller.createTestRun(new vscode.TestRunRequest([item]), "Kernel LSP", false);
    report(run, item, checked);
    run.end();
  }

  async #run(request: vscode.TestRunRequest, token: vscode.CancellationToken): Promise<void> {
    const run = this.#controller.createTestRun(request);
    const asked = request.include ?? [...this.#controller.items].map(([, item]) => item);
    const left = request.exclude?.map((item) => item.id) ?? [];
    const files = new Set(asked.map(fileOf).filter((file) => !left.includes(file.id)));
    try {
      await Promise.all([...files].map((file) => this.#check(run, file, token)));
    } finally {
      run.end();
    }
  }

  /** Checks a file, whole: its kernels are launched together. */
  async #check(run: vscode.TestRun, file: vscode.TestItem, token: vscode.CancellationToken): Promise<void> {
    run.started(file);
    try {
      await vscode.workspace.openTextDocument(vscode.Uri.parse(file.id));
      const job = await this.server.request("startJob", { work: "check", textDocument: { uri: file.id } });
      const stopping = token.onCancellationRequested(() => void this.jobs.stop(job.id).catch(() => undefined));
      const ended = await this.#end(job);
      stopping.dispose();
      if (ended?.state === "cancelled") run.skipped(file);
      else if (ended?.state !== "done")
        run.errored(file, new vscode.TestMessage(ended?.reason ?? "The server is gone."));
      else {
        const checked = await this.#refresh(file);
        if (checked !== undefined) {
          this.#shown.set(file.id, JSON.stringify(checked));
          report(run, file, checked);
        }
      }
    } catch (error) {
      run.errored(file, new vscode.TestMessage(error instanceof Error ? error.message : String(error)));
    }
  }

  /** The job once it has ended; undefined where the server is gone. */
  #end(started: JobRecord): Promise<JobRecord | undefined> {
    return new Promise((resolve) => {
      const listening = this.jobs.onDidChange((job) => {
        const isOver = job?.id === started.id && job.state !== "waiting" && job.state !== "running";
        if (job !== undefined && !isOver) return;
        listening.dispose();
        resolve(job);
      });
    });
  }
}

/** Tells a run what became of a file's items; each message stands where the finding does. */
function report(run: vscode.TestRun, file: vscode.TestItem, checked: CheckedText): void {
  const errors = checked.findings.filter((finding) => finding.severity === "error");
  for (const { name } of checked.kernels) {
    const item = file.children.get(`${file.id}#kernel:${name}`);
    if (item !== undefined) tell(run, item, errors.filter((finding) => finding.kernel === name).map(message));
  }
  for (const [, one] of file.children) {
    if (!one.id.startsWith(`${file.id}#case:`)) continue;
    const own = checked.families.filter((family) => (family.case ?? "all cases") === one.label);
    for (const [, item] of one.children) {
      const results = own.filter((family) => family.name === item.label);
      const failed = results.filter((family) => family.status === "failed");
      if (failed.length === 0 && results.every((family) => family.status === "skipped")) run.skipped(item);
      else
        tell(
          run,
          item,
          failed.map((family) => {
            const one = new vscode.TestMessage(family.detail || "It failed.");
            return errors.length === 0 ? located(one, file) : one; // findings say it at their lines already
          }),
        );
    }
  }
  run.appendOutput(`${file.label}: ${checked.reason ?? "not checked"}\r\n`, undefined, file);
  if (file.children.size === 0 || errors.length > 0) tell(run, file, errors.map(message));
  else run.passed(file);
}

function tell(run: vscode.TestRun, item: vscode.TestItem, messages: vscode.TestMessage[]): void {
  if (messages.length > 0) run.failed(item, messages);
  else run.passed(item);
}

function message(finding: CheckedFinding): vscode.TestMessage {
  const one = new vscode.TestMessage(`${finding.rule}: ${finding.message}`);
  one.location = new vscode.Location(vscode.Uri.parse(finding.uri), at(finding.line));
  return one;
}

function located(one: vscode.TestMessage, item: vscode.TestItem): vscode.TestMessage {
  if (item.uri !== undefined && item.range !== undefined) one.location = new vscode.Location(item.uri, item.range);
  return one;
}

function fileOf(item: vscode.TestItem): vscode.TestItem {
  return item.parent === undefined ? item : fileOf(item.parent);
}

function at(line: number): vscode.Range {
  return new vscode.Range(line, 0, line, 0);
}
