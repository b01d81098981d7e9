import * as vscode from "vscode";

export const SECTION = "kernel-lsp";

interface Manifest {
  contributes: { configuration: { properties: Record<string, unknown> }[] };
}

/** What the user or the workspace has set, by VS Code's names; defaults are left out. */
export function changed(context: vscode.ExtensionContext): Record<string, unknown> {
  const { contributes } = context.extension.packageJSON as Manifest;
  const settings = vscode.workspace.getConfiguration();
  const found: Record<string, unknown> = {};
  for (const key of contributes.configuration.flatMap((section) => Object.keys(section.properties))) {
    const known = settings.inspect(key);
    const value = known?.workspaceFolderValue ?? known?.workspaceValue ?? known?.globalValue;
    if (value !== undefined) found[key] = value;
  }
  return found;
}

/**
 * The same by the server's dotted names. A project's own settings count for more than defaults do. Settings of the
 * extension itself are left out, which the server does not know. An empty text is as good as none.
 */
export function said(context: vscode.ExtensionContext): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(changed(context))) {
    // The server's names have underscores where VS Code's have capitals.
    const name = key.slice(SECTION.length + 1).replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (!name.startsWith("server.") && !name.startsWith("trace.")) found[name] = value === "" ? null : value;
  }
  return found;
}
