import * as vscode from "vscode";
import { captureRun } from "./capture";
import { tell } from "./endings";
import { EvidencePanels } from "./evidence";
import { holdsKernels } from "./files";
import { Jobs } from "./jobs";
import { KernelsView } from "./kernels";
import { MachineCodeView } from "./machineCode";
import { News } from "./news";
import { writeReport } from "./problem";
import type { Row } from "./rows";
import { Server } from "./server";
import { showMenu, StatusItem } from "./status";
import { runInTerminal } from "./terminal";
import { CheckTasks, TYPE } from "./tasks";
import { CheckTests } from "./tests";
import { Variants } from "./variants";
import { checkExample, openExample, showReadme } from "./walkthrough";

/** Called by VS Code; nothing is started before a kernel is open or the view of kernels is shown. */
export function activate(context: vscode.ExtensionContext): void {
  const server = new Server(context);
  const jobs = new Jobs(server);
  const news = new News();
  const variants = new Variants(server, news);
  const evidence = new EvidencePanels(server, variants);
  const machineCode = new MachineCodeView(server);
  const kernels = new KernelsView(server, jobs, news);
  const tests = new CheckTests(server, jobs);
  const status = new StatusItem(server, jobs);
  context.subscriptions.push(server, jobs, news, variants, evidence, machineCode, kernels, tests, status);

  context.subscriptions.push(vscode.tasks.registerTaskProvider(TYPE, new CheckTasks(server)));

  server.commands.set("evidence", async (verdict, uri) => {
    await evidence.show(String(verdict), typeof uri === "string" ? uri : undefined);
  });
  server.commands.set("difference", async (uri, verdict) => {
    await variants.showDifference(String(uri), String(verdict));
  });
  const ask = async (uri: string, kernel?: string): Promise<void> => {
    const prompt = "A sentence that goes into the model's next prompt";
    const placeHolder = "keep the accumulation in fp32";
    const sentence = await vscode.window.showInputBox({ title: "Kernel LSP: Ask for", prompt, placeHolder });
    if (sentence?.trim()) await server.run("ask", uri, sentence, ...(kernel === undefined ? [] : [kernel]));
  };
  server.commands.set("capture", async (uri, program) => {
    await captureRun(server, String(uri), typeof program === "string" ? program : undefined);
  });
  server.commands.set("machineCode", async (uri, kernel) => {
    await machineCode.show(vscode.Uri.parse(String(uri)), { kernel: typeof kernel === "string" ? kernel : undefined });
  });
  server.commands.set("trust", (...folders) => trust(server, folders));

  const look = (): void => {
    const document = vscode.window.activeTextEditor?.document;
    const hasKernels = holdsKernels(document);
    const isFile = document?.uri.scheme === "file"; // what works on files is not offered of a text in none
    void vscode.commands.executeCommand("setContext", "kernelLsp.kernelFile", hasKernels && isFile);
    if (hasKernels) void server.ensure();
  };
  context.subscriptions.push(
    vscode.window.onDidChangeActiveTextEditor(look),
    vscode.workspace.onDidChangeTextDocument(({ document }) => {
      if (document === vscode.window.activeTextEditor?.document) look();
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => {
      if (server.state !== "off") void server.restart();
    }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("kernel-lsp.server.path") && server.state !== "off") void server.restart();
    }),
    jobs.onDidEnd((job) => {
      tell(job, server, variants, news, (verdict, uri) => evidence.show(verdict, uri)).catch((error: unknown) => {
        server.complain(error);
      });
    }),
  );

  const command = (name: string, run: (row?: Row | vscode.Uri) => unknown): void => {
    const guarded = async (row?: Row | vscode.Uri): Promise<void> => {
      try {
        await run(row);
      } catch (error) {
        server.complain(error);
      }
    };
    context.subscriptions.push(vscode.commands.registerCommand(`kernelLsp.${name}`, guarded));
  };
  const ofFile = (run: (place: Place) => Promise<unknown>) => async (row?: Row | vscode.Uri) => {
    const place = placeOf(row);
    if (place !== undefined) await run(place);
  };

  command(
    "refine",
    ofFile(({ uri, kernel }) => server.run("refine", uri, ...(kernel === undefined ? [] : [kernel]))),
  );
  command(
    "ask",
    ofFile(({ uri, kernel }) => ask(uri, kernel)),
  );
  command(
    "check",
    ofFile(({ uri }) => server.run("check", uri)),
  );
  command(
    "profile",
    ofFile(({ uri, kernel }) => server.run("profile", uri, ...(kernel === undefined ? [] : [kernel]))),
  );
  command(
    "draft",
    ofFile(({ uri, kernel }) => server.run("draft", uri, ...(kernel === undefined ? [] : [kernel]))),
  );
  command(
    "capture",
    ofFile(({ uri }) => captureRun(server, uri)),
  );
  command(
    "baseline",
    ofFile(({ uri }) => server.run("baseline", uri)),
  );
  command(
    "trust",
    ofFile(({ uri }) => trust(server, [vscode.Uri.joinPath(vscode.Uri.parse(uri), "..").toString()])),
  );
  command(
    "compare",
    ofFile(({ uri }) => server.run("compare", uri)),
  );
  command(
    "variants",
    ofFile(({ uri, kernel }) => variants.pick(uri, kernel)),
  );
  command(
    "machineCode",
    ofFile(({ uri, line }) => machineCode.show(vscode.Uri.parse(uri), { line })),
  );
  command("evidence", async (row) => {
    if (isRow(row) && row.kind === "verdict") await evidence.show(row.verdict, row.uri);
    else await ofFile(({ uri }) => evidence.pick(uri))(row);
  });
  command("showFound", async () => {
    if (news.latest !== undefined) await variants.showDifference(news.latest.uri, news.latest.variant.verdict);
  });
  command("applyShown", async (modified) => {
    const shown = variants.shown(isRow(modified) ? undefined : modified);
    if (shown !== undefined) await variants.apply(shown.uri, shown.verdict);
  });
  context.subscriptions.push(
    vscode.commands.registerCommand("kernelLsp.applied", async (uri: string, line: number, verdict: string) => {
      await variants.showApplied(vscode.Uri.parse(uri), verdict, new vscode.Range(line, 0, line, 0));
    }),
  );
  command("evidenceShown", async (modified) => {
    const shown = variants.shown(isRow(modified) ? undefined : modified);
    if (shown !== undefined) await evidence.show(shown.verdict, shown.uri);
  });
  command("stop", async (row) => {
    if (isRow(row) && row.kind === "job") await jobs.stop(row.job.id);
  });
  command("checkAll", async () => {
    for (const file of (await server.request("kernels", {})).files)
      if (file.workload && file.trusted && file.kernels.length > 0) await server.run("check", file.uri);
  });
  command("stopAll", () => server.run("cancel"));
  command("refreshKernels", () => {
    kernels.refresh();
  });
  command("findKernel", () => kernels.find());
  command("menu", () => showMenu(server, jobs));
  command("restart", () => server.restart());
  command("log", () => {
    server.log.show(true);
  });
  command("settings", () =>
    vscode.commands.executeCommand("workbench.action.openSettings", `@ext:${context.extension.id}`),
  );
  command("doctor", () => {
    runInTerminal("Kernel LSP: doctor", server.command, "doctor");
  });
  command("report", () => writeReport(server));
  command("install", () => server.install());
  command("example", () => openExample(server));
  command("checkExample", () => checkExample(server));
  command("documentation", () => showReadme(context.extensionUri));
  command("walkthrough", async () => {
    await vscode.commands.executeCommand("workbench.action.openWalkthrough", `${context.extension.id}#start`, false);
  });
  look();
}

/** In Restricted Mode trust is VS Code's to give: the server vouches for nothing that the editor does not. */
async function trust(server: Server, folders: unknown[]): Promise<void> {
  if (vscode.workspace.isTrusted) await server.run("trust", ...folders);
  else await vscode.commands.executeCommand("workbench.trust.manage");
}

interface Place {
  uri: string;
  kernel?: string;
  line?: number;
}

function placeOf(row: Row | vscode.Uri | undefined): Place | undefined {
  if (isRow(row)) {
    if (row.kind === "kernel") return { uri: row.file.uri, kernel: row.kernel.name, line: row.kernel.line };
    return row.kind === "file" ? { uri: row.file.uri } : undefined;
  }
  const uri = row ?? vscode.window.activeTextEditor?.document.uri;
  return uri?.scheme === "file" ? { uri: uri.toString() } : undefined;
}

function isRow(given: Row | vscode.Uri | undefined): given is Row {
  return given !== undefined && !(given instanceof vscode.Uri);
}
