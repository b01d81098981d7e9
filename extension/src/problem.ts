import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as vscode from "vscode";
import type { Server } from "./server";
import { changed } from "./settings";

const DOCTOR_MS = 60_000;
const LOG_LINES = 60;
const FENCE = "```";

/**
 * Opens a text with what a report of a problem needs beside the person's own words: versions, settings that were changed,
 * what `kernel-lsp doctor` prints, and the end of the log. It is the person's to read, shorten and send; nothing is sent.
 */
export async function writeReport(server: Server): Promise<void> {
  const doctor = await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Window, title: "Kernel LSP: asking what this machine has" },
    () => doctorOf(server),
  );
  const content = [
    "# Kernel LSP: a problem",
    "",
    "<!-- Nothing of this was sent. Read it, and leave out what nobody should see: paths, names of kernels. -->",
    "",
    "## What happened, and what did you expect?",
    "",
    "",
    "## How can it be repeated?",
    "",
    "<!-- The steps, and the smallest kernel and workload that show it. -->",
    "",
    "",
    "## Versions",
    "",
    ...versions(server).map(([name, value]) => `- ${name}: ${value}`),
    "",
    ...fenced("Settings that were changed", "json", JSON.stringify(changed(server.context), null, 2)),
    ...fenced("What `kernel-lsp doctor` prints", "text", doctor),
    ...fenced(`The last ${LOG_LINES} lines of the log`, "text", server.kept.last(LOG_LINES)),
  ].join("\n");
  const document = await vscode.workspace.openTextDocument({ language: "markdown", content });
  const editor = await vscode.window.showTextDocument(document, { preview: false });
  const first = document.positionAt(content.indexOf("expect?") + "expect?".length).translate(1);
  editor.selection = new vscode.Selection(first.with({ character: 0 }), first.with({ character: 0 }));
}

function versions(server: Server): [string, string][] {
  const { status } = server;
  const extension = server.context.extension.packageJSON as { version: string };
  return [
    ["extension", extension.version],
    ["editor", `${vscode.env.appName} ${vscode.version}, ${vscode.env.remoteName ?? "local"}`],
    ["system", `${process.platform} ${process.arch}`],
    ["server", status === undefined ? server.problem || server.state : `${status.version}, found by ${server.where}`],
    ["GPU", status === undefined ? "unknown" : (status.gpu?.name ?? "none")],
    ["model", status?.model ?? "none"],
  ];
}

async function doctorOf(server: Server): Promise<string> {
  if (server.command === "" || !vscode.workspace.isTrusted) return "not asked: no server of a trusted workspace runs";
  try {
    const env = { ...process.env, COLUMNS: "120", NO_COLOR: "1" };
    const { stdout } = await promisify(execFile)(server.command, ["doctor"], { timeout: DOCTOR_MS, env });
    return stdout;
  } catch (error) {
    const { stdout } = error as { stdout?: string };
    return stdout === undefined || stdout === "" ? String(error) : stdout; // it ends with a status where something lacks
  }
}

function fenced(title: string, language: string, text: string): string[] {
  return [`## ${title}`, "", FENCE + language, text.trimEnd().replaceAll(FENCE, "'''"), FENCE, ""];
}
