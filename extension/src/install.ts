import { execFile, spawn } from "node:child_process";
import { mkdir, readdir, rm } from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { onPath, ownEnvironment } from "./find";

const PYTHONS = ["python3.13", "python3.12", "python3.11", "python3"];
const FITS = "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))";

/**
 * Installs the server that comes with this extension into an environment of its own; to cancel leaves nothing behind.
 *
 * It takes no terminal, which VS Code opens only in a trusted workspace, and runs nothing of the workspace's.
 *
 * @returns whether it is there now.
 */
export async function installServer(context: vscode.ExtensionContext, log: vscode.LogOutputChannel): Promise<boolean> {
  const folder = ownEnvironment(context);
  const packed = context.asAbsolutePath("server");
  const wheel = (await readdir(packed).catch(() => [])).find((name) => name.endsWith(".whl"));
  if (wheel === undefined) {
    void vscode.window.showErrorMessage("This build of Kernel LSP contains no server. Install `kernel-lsp` yourself.");
    return false;
  }
  const commands = await commandsFor(folder, `${path.join(packed, wheel)}[gpu]`);
  if (commands === undefined) {
    void vscode.window.showErrorMessage(
      "Neither uv nor Python 3.11, 3.12 or 3.13 was found on PATH. Install one of them and try again.",
    );
    return false;
  }
  await mkdir(path.dirname(folder), { recursive: true });
  const end = await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Notification, title: "Installing the server of Kernel LSP", cancellable: true },
    (progress, token) => runAll(commands, log, progress, token),
  );
  if (end === "done") return true;
  await rm(folder, { recursive: true, force: true });
  if (end === "failed") {
    const answer = await vscode.window.showErrorMessage("The server was not installed; the log says why.", "Show Log");
    if (answer !== undefined) log.show(true);
  }
  return false;
}

type End = "done" | "failed" | "cancelled";

/** Runs commands one after the other, each only if the one before succeeded; their last line is shown as progress. */
async function runAll(
  commands: string[][],
  log: vscode.LogOutputChannel,
  progress: vscode.Progress<{ message: string }>,
  token: vscode.CancellationToken,
): Promise<End> {
  for (const command of commands) {
    log.info(command.join(" "));
    const code = await run(command, token, (line) => {
      log.info(line);
      progress.report({ message: line });
    });
    if (token.isCancellationRequested) return "cancelled";
    if (code !== 0) {
      log.error(`This ended with ${code}.`);
      return "failed";
    }
  }
  return "done";
}

/** Runs a command with all its children, which end with it; the exit code, or 127 where it cannot be started. */
function run(
  [command = "", ...given]: string[],
  token: vscode.CancellationToken,
  hear: (line: string) => void,
): Promise<number> {
  return new Promise((ended) => {
    const child = spawn(command, given, { detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const stopping = token.onCancellationRequested(() => {
      if (child.pid !== undefined) process.kill(-child.pid);
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        for (const line of text.split(/[\r\n]+/)) if (line.trim() !== "") hear(line.trim());
      });
    }
    child.on("error", (error) => {
      hear(error.message);
      ended(127);
    });
    child.on("close", (code) => {
      stopping.dispose();
      ended(code ?? 1);
    });
  });
}

async function commandsFor(folder: string, requirement: string): Promise<string[][] | undefined> {
  const python = path.join(folder, "bin", "python");
  const uv = await onPath("uv");
  if (uv !== undefined) {
    return [
      [uv, "venv", "--clear", "--python", ">=3.11,<3.14", folder],
      [uv, "pip", "install", "--python", python, requirement],
    ];
  }
  for (const name of PYTHONS) {
    const found = await onPath(name);
    if (found !== undefined && (await succeeds(found, ["-c", FITS]))) {
      return [
        [found, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "--disable-pip-version-check", requirement],
      ];
    }
  }
  return undefined;
}

async function succeeds(command: string, given: string[]): Promise<boolean> {
  try {
    await promisify(execFile)(command, given, { timeout: 10_000 });
    return true;
  } catch {
    return false;
  }
}
