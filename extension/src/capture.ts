import * as vscode from "vscode";
import type { Server } from "./server";

const SETTING = "capture.command";

/** Captures a run of `program`, else of the one in the workspace's settings, which it asks for once. */
export async function captureRun(server: Server, uri: string, program?: string): Promise<void> {
  const settings = vscode.workspace.getConfiguration("kernel-lsp", vscode.Uri.parse(uri));
  const known = program ?? settings.get<string>(SETTING)?.trim() ?? "";
  const named = known === "" ? await askForProgram(settings) : known;
  if (named !== undefined) await server.run("capture", uri, named);
}

async function askForProgram(settings: vscode.WorkspaceConfiguration): Promise<string | undefined> {
  const program = await vscode.window.showInputBox({
    title: "Kernel LSP: Capture a Run",
    prompt: "A program that calls the kernel. It is run in the project's folder, and kept in the workspace's settings.",
    placeHolder: "python train.py --steps 20",
    ignoreFocusOut: true,
  });
  const named = program?.trim() ?? "";
  if (named === "") return undefined;
  const inWorkspace = vscode.workspace.workspaceFolders !== undefined;
  const target = inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
  await settings.update(SETTING, named, target);
  return named;
}
