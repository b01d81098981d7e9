import { execFile } from "node:child_process";
import { mkdir, readdir } from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { onPath, ownEnvironment } from "./find";
import { runInTerminal } from "./terminal";

const PYTHONS = ["python3.13", "python3.12", "python3.11", "python3"];
const FITS = "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))";

/**
 * Installs the server that comes with this extension into an environment of its own, in a terminal.
 *
 * @returns whether it is there now.
 */
export async function installServer(context: vscode.ExtensionContext): Promise<boolean> {
  const folder = ownEnvironment(context);
  const packed = context.asAbsolutePath("server");
  const wheel = (await readdir(packed).catch(() => [])).find((name) => name.endsWith(".whl"));
  if (wheel === undefined) {
    void vscode.window.showErrorMessage("This build of Kernel LSP carries no server. Install `kernel-lsp` yourself.");
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
  if (await runInTerminal("Kernel LSP: install", commands)) return true;
  void vscode.window.showErrorMessage("The server was not installed; the terminal says why.");
  return false;
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
