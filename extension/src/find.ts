import { access, constants, stat } from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";

/** A server that can be started, and where it was found. */
export interface Found {
  command: string;
  where: string;
}

/** `brought`: there is one in the workspace, which nobody trusts yet. */
export type Search = Found | { problem: string; brought: boolean };

const NAME = "kernel-lsp";

/** The folder of the environment that this extension installs the server into. */
export function ownEnvironment(context: vscode.ExtensionContext): string {
  return path.join(context.globalStorageUri.fsPath, "server");
}

/**
 * The first server there is: named in the settings, beside the Python extension's interpreter, in the workspace's
 * `.venv`, on PATH, or installed by this extension. What a workspace brings along counts only where it is trusted.
 */
export async function findServer(context: vscode.ExtensionContext): Promise<Search> {
  const said = vscode.workspace.getConfiguration(NAME).get<string>("server.path", "").trim();
  if (said !== "") {
    const command = path.resolve(rootOf() ?? os.homedir(), said.replace(/^~(?=\/|$)/, os.homedir()));
    if (await isExecutable(command)) return { command, where: "the setting kernel-lsp.server.path" };
    return { problem: `The setting kernel-lsp.server.path names ${command}, which cannot be run.`, brought: false };
  }
  for (const [folder, where] of await places(context)) {
    const command = path.join(folder, NAME);
    if (await isExecutable(command)) return { command, where };
  }
  if (!vscode.workspace.isTrusted)
    for (const folder of ownFolders())
      if (await isExecutable(path.join(folder, NAME)))
        return { problem: "This workspace brings a kernel-lsp. Trust the workspace to use it.", brought: true };
  return { problem: "The server of Kernel LSP was not found on this machine.", brought: false };
}

/** The first command of a name on PATH; a workspace's own folders do not count. */
export async function onPath(name: string): Promise<string | undefined> {
  for (const folder of pathFolders()) {
    const command = path.join(folder, name);
    if (await isExecutable(command)) return command;
  }
  return undefined;
}

async function places(context: vscode.ExtensionContext): Promise<[string, string][]> {
  const found: [string, string][] = [];
  if (vscode.workspace.isTrusted) {
    const interpreter = await pythonInterpreter();
    if (interpreter !== undefined) found.push([path.dirname(interpreter), "the selected Python interpreter"]);
    found.push(...ownFolders().map((folder): [string, string] => [folder, "the workspace's .venv"]));
  }
  found.push(...pathFolders().map((folder): [string, string] => [folder, "PATH"]));
  found.push([path.join(ownEnvironment(context), "bin"), "its own environment"]);
  return found;
}

/** Where the workspace's own environments have their commands. */
function ownFolders(): string[] {
  const folders = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file");
  return folders.map(({ uri }) => path.join(uri.fsPath, ".venv", "bin"));
}

function pathFolders(): string[] {
  const roots = (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath + path.sep);
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  const trusted = vscode.workspace.isTrusted;
  return folders.filter((folder) => trusted || !roots.some((root) => (folder + path.sep).startsWith(root)));
}

interface PythonApi {
  environments?: { getActiveEnvironmentPath?: (resource?: vscode.Uri) => { path: string } };
}

async function pythonInterpreter(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>("ms-python.python");
  if (extension === undefined) return undefined;
  try {
    const api = await extension.activate();
    const found = api.environments?.getActiveEnvironmentPath?.(vscode.workspace.workspaceFolders?.[0]?.uri).path;
    if (found === undefined || !path.isAbsolute(found)) return undefined;
    return (await stat(found)).isDirectory() ? path.join(found, "bin", "python") : found;
  } catch {
    return undefined; // it has no interpreter, or fails in a way of its own: there are other places to look in
  }
}

function rootOf(): string | undefined {
  return vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
