import * as vscode from "vscode";
import {
  CloseAction,
  CodeActionResolveRequest,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  ResponseError,
  RevealOutputChannelOn,
  State as ClientState,
  type ClientCapabilities,
  type Middleware,
} from "vscode-languageclient/node";
import { DOCUMENTS } from "./files";
import { findServer } from "./find";
import { installServer } from "./install";
import { Log } from "./log";
import type { Command, JobRecord, Requests, ServerStatus } from "./protocol";
import { SECTION, said } from "./settings";

/**
 * `off` until a kernel is opened; `missing`: there is none on this machine; `untrusted`: the workspace brings one, and is
 * not trusted; `failed`: it does not start or stay up.
 */
export type State = "off" | "starting" | "running" | "missing" | "untrusted" | "failed";

/** Answers a command of the server in the editor itself. */
export type Local = (...given: unknown[]) => Promise<unknown>;

const CRASHES = 3; // within this time the server is started again
const WINDOW_MS = 180_000;
const PROGRESS = "kernel-lsp/"; // begins the tokens of jobs, which are shown in toasts and in the status item

/** The language server: found, started, watched, and spoken to. */
export class Server implements vscode.Disposable {
  state: State = "off";
  /** Why there is none, for a person. */
  problem = "";
  /** What runs, and where it was found. */
  where = "";
  status: ServerStatus | undefined;
  readonly kept = new Log("Kernel LSP");
  readonly log = this.kept.channel;
  readonly commands = new Map<string, Local>();

  readonly #changed = new vscode.EventEmitter<void>();
  readonly #heard = new vscode.EventEmitter<JobRecord>();
  readonly #lost = new vscode.EventEmitter<void>();
  readonly onDidChange = this.#changed.event;
  readonly onJob = this.#heard.event;
  /** The server is gone, and its jobs with it. */
  readonly onLost = this.#lost.event;

  #client: LanguageClient | undefined;
  #command = "";
  #starting: Promise<void> | undefined;
  #crashes: number[] = [];

  constructor(readonly context: vscode.ExtensionContext) {}

  /** Starts it unless that was done or tried before. */
  async ensure(): Promise<void> {
    if (this.state === "off") await this.start();
  }

  /** Starts it; says so where that fails. */
  start(): Promise<void> {
    this.#starting ??= this.#start().finally(() => (this.#starting = undefined));
    return this.#starting;
  }

  async restart(): Promise<void> {
    await this.#starting;
    await this.stop();
    this.#crashes = [];
    await this.start();
  }

  async stop(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    this.#lost.fire();
    client.outputChannel.debug("stopping");
    await client.dispose().catch(() => undefined); // it may have ended by itself
  }

  /** The path of what was started last; empty before. */
  get command(): string {
    return this.#command;
  }

  /** Asks the server; rejects with its words where it cannot answer. */
  async request<K extends keyof Requests>(method: K, params: Requests[K]["params"]): Promise<Requests[K]["result"]> {
    if (this.#client === undefined || this.state !== "running")
      throw new Error(this.problem || "The server is not running.");
    return await this.#client.sendRequest<Requests[K]["result"]>(`kernelLsp/${method}`, params);
  }

  get isRunning(): boolean {
    return this.state === "running";
  }

  /** Has the server run one of its commands; what goes wrong is told to the user, once. */
  async run(command: Command, ...given: unknown[]): Promise<unknown> {
    try {
      if (this.#client === undefined) throw new Error(this.problem || "The server is not running.");
      return await this.#client.sendRequest(ExecuteCommandRequest.type, {
        command: `${SECTION}.${command}`,
        arguments: given,
      });
    } catch (error) {
      this.complain(error);
      return undefined;
    }
  }

  /** Shows an error, unless the server has done so already. */
  complain(error: unknown): void {
    if (error instanceof ResponseError && (error.data as { told?: boolean } | undefined)?.told === true) return;
    void vscode.window.showErrorMessage(error instanceof Error ? error.message : String(error));
  }

  dispose(): void {
    void this.stop();
    for (const one of [this.#changed, this.#heard, this.#lost, this.log]) one.dispose();
  }

  async #start(): Promise<void> {
    this.#become("starting");
    const found = await findServer(this.context);
    if ("problem" in found) {
      this.#become(found.brought ? "untrusted" : "missing", found.problem);
      void (found.brought ? this.#askForTrust() : this.#offer());
      return;
    }
    this.#command = found.command;
    this.where = found.where;
    this.log.info(`starting ${found.command}, found by ${found.where}`);
    const client = this.#make(found.command);
    this.#client = client;
    try {
      await client.start();
    } catch (error) {
      this.log.error(error instanceof Error ? error : String(error));
      await this.stop();
      this.#fail(`The server at ${found.command} could not be started.`);
      return;
    }
    await this.#ready();
  }

  async #ready(): Promise<void> {
    try {
      this.state = "running";
      this.status = await this.request("status", {});
      this.#become("running");
    } catch (error) {
      this.log.error(error instanceof Error ? error : String(error));
      await this.stop();
      this.#fail(`The server at ${this.#command} is of another version than this extension.`);
    }
  }

  async #askForStatus(): Promise<void> {
    try {
      this.status = await this.request("status", {});
    } catch (error) {
      this.log.warn(`the state of the server is not known: ${String(error)}`);
      return;
    }
    this.#tellOfChange();
  }

  #make(command: string): LanguageClient {
    const client = new QuietClient(
      SECTION,
      "Kernel LSP",
      { command, args: ["serve"] },
      {
        documentSelector: DOCUMENTS,
        outputChannel: this.log,
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        markdown: { isTrusted: { enabledCommands: ["kernelLsp.machineCode"] } },
        initializationOptions: () => ({ trusted: vscode.workspace.isTrusted, ...said(this.context) }),
        initializationFailedHandler: () => false,
        middleware: this.#middleware(),
        errorHandler: {
          error: () => ({ action: ErrorAction.Continue, handled: true }),
          closed: () => this.#closed(),
        },
      },
    );
    client.registerFeature({
      fillClientCapabilities: declare,
      initialize: () => undefined,
      getState: () => ({ kind: "static" }),
      clear: () => undefined,
    });
    client.onNotification("kernelLsp/jobProgress", (job: JobRecord) => {
      this.#heard.fire(job);
    });
    client.onNotification("kernelLsp/statusChanged", () => {
      if (this.isRunning) void this.#askForStatus();
    });
    client.onDidChangeState(({ oldState, newState }) => {
      if (
        this.#client === client &&
        oldState === ClientState.Starting &&
        newState === ClientState.Running &&
        this.#starting === undefined
      ) {
        void this.#ready();
      }
    });
    return client;
  }

  #middleware(): Middleware {
    return {
      executeCommand: async (command, given: unknown[]) => {
        const name = command.slice(SECTION.length + 1) as Command; // the server announced it
        const local = this.commands.get(name);
        return await (local === undefined ? this.run(name, ...given) : local(...given));
      },
      handleWorkDoneProgress: (token, params, next) => {
        if (typeof token !== "string" || !token.startsWith(PROGRESS)) next(token, params);
      },
      resolveCodeAction: async (action, token) => {
        const client = this.#client;
        if (client === undefined) return action;
        try {
          const asked = client.code2ProtocolConverter.asCodeActionSync(action);
          const answer = await client.sendRequest(CodeActionResolveRequest.type, asked, token);
          return await client.protocol2CodeConverter.asCodeAction(answer, token);
        } catch {
          return action; // the server has asked the user what to do about it
        }
      },
      window: {
        showDocument: async (params, token, next) => {
          if (!params.uri.endsWith("_workload.py")) return await next(params, token);
          // A draft is read beside the kernel that it is for.
          await vscode.window.showTextDocument(vscode.Uri.parse(params.uri), { viewColumn: vscode.ViewColumn.Beside });
          return { success: true };
        },
      },
      workspace: {
        configuration: (params) => params.items.map((item) => (item.section === SECTION ? said(this.context) : null)),
      },
    };
  }

  #closed(): { action: CloseAction; handled: boolean } {
    const stop = { action: CloseAction.DoNotRestart, handled: true };
    if (this.#client === undefined || this.#starting !== undefined) return stop;
    this.#lost.fire();
    this.#crashes = [...this.#crashes.filter((time) => Date.now() - time < WINDOW_MS), Date.now()];
    if (this.#crashes.length > CRASHES) {
      this.#client = undefined;
      this.#fail("The server of Kernel LSP stops again and again.");
      return stop;
    }
    this.#become("starting");
    const message =
      "The server of Kernel LSP stopped unexpectedly and is started again. Jobs under way have ended; what they had found is kept.";
    void this.#say(vscode.window.showWarningMessage, message, []);
    return { action: CloseAction.Restart, handled: true };
  }

  #fail(message: string): void {
    this.#become("failed", message);
    void this.#say(vscode.window.showErrorMessage, message, ["Restart", "Install"]);
  }

  async #askForTrust(): Promise<void> {
    if ((await vscode.window.showInformationMessage(this.problem, "Manage Trust")) !== undefined)
      await vscode.commands.executeCommand("workbench.trust.manage");
  }

  async #offer(): Promise<void> {
    const choices = ["Install", "Choose..."];
    const answer = await vscode.window.showWarningMessage(
      `${this.problem} It can be installed into an environment of its own, with PyTorch and the CUDA compilers: a few gigabytes.`,
      ...choices,
    );
    if (answer === "Install") await this.install();
    if (answer === "Choose...")
      await vscode.commands.executeCommand("workbench.action.openSettings", "kernel-lsp.server.path");
  }

  /** Installs the server that comes along, and starts it. */
  async install(): Promise<void> {
    if (!(await installServer(this.context, this.log))) return;
    await this.restart();
    if (this.isRunning) void vscode.window.showInformationMessage("The server of Kernel LSP is installed and running.");
  }

  async #say(show: typeof vscode.window.showErrorMessage, message: string, choices: string[]): Promise<void> {
    const answer = await show(message, "Show Log", ...choices);
    if (answer === "Show Log") this.log.show(true);
    if (answer === "Restart") await this.restart();
    if (answer === "Install") await this.install();
  }

  #become(state: State, problem = ""): void {
    this.state = state;
    this.problem = problem;
    if (state !== "running") this.status = undefined;
    void vscode.commands.executeCommand("setContext", "kernelLsp.state", state);
    this.#tellOfChange();
  }

  #tellOfChange(): void {
    void vscode.commands.executeCommand("setContext", "kernelLsp.searches", this.status?.searches === true);
    this.#changed.fire();
  }
}

/** What goes wrong is told by the extension, in its own words and once; the library's are for the log. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

function declare(capabilities: ClientCapabilities): void {
  capabilities.experimental = {
    ...(capabilities.experimental as object | undefined),
    kernelLsp: { jobProgress: true, statusChanged: true },
  };
  // A variant is seen in a difference view before it is applied; a second preview, with its boxes unticked, is no help.
  delete capabilities.workspace?.workspaceEdit?.changeAnnotationSupport;
}
