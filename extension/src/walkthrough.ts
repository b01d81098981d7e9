import { mkdir, readdir, writeFile, readFile } from "node:fs/promises";
import * as path from "node:path";
import * as vscode from "vscode";
import type { Server } from "./server";

const KERNEL = "scale.cu";
const READY_MS = 60_000;

/** Opens the example, a copy that the user may break, and has the server trust its folder: it is this extension's own. */
export async function openExample(server: Server): Promise<vscode.TextEditor> {
  const from = server.context.asAbsolutePath("example");
  const folder = path.join(server.context.globalStorageUri.fsPath, "example");
  await mkdir(folder, { recursive: true });
  for (const name of await readdir(from)) {
    await writeFile(path.join(folder, name), await readFile(path.join(from, name)), { flag: "wx" }).catch(
      (error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error; // what the user made of it is kept
      },
    );
  }
  const document = await vscode.workspace.openTextDocument(path.join(folder, KERNEL));
  const editor = await vscode.window.showTextDocument(document, {
    preview: false,
    viewColumn: vscode.ViewColumn.Active,
  });
  await server.ensure();
  if (server.state === "starting") await until(server);
  if (server.state === "running") await server.run("trust", vscode.Uri.file(folder).toString());
  return editor;
}

/** Opens the example and checks it. */
export async function checkExample(server: Server): Promise<void> {
  const { document } = await openExample(server);
  await server.run("check", document.uri.toString());
}

function until(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      listening.dispose();
      resolve();
    };
    const timer = setTimeout(done, READY_MS);
    const listening = server.onDidChange(() => {
      if (server.state !== "starting") done();
    });
  });
}

/** Shows the extension's own README, without a network; the package has its name in small letters. */
export async function showReadme(extension: vscode.Uri): Promise<void> {
  const files = await vscode.workspace.fs.readDirectory(extension);
  const name = files.map(([file]) => file).find((file) => file.toLowerCase() === "readme.md");
  if (name !== undefined)
    await vscode.commands.executeCommand("markdown.showPreview", vscode.Uri.joinPath(extension, name));
}
