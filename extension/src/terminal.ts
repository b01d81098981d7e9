import { spawn, type ChildProcess } from "node:child_process";
import * as vscode from "vscode";

/** Runs a command in a terminal that stays to be read; closing it, or Ctrl+C in it, ends the command. */
export function runInTerminal(title: string, command: string, ...given: string[]): void {
  const output = new vscode.EventEmitter<string>();
  let running: ChildProcess | undefined;
  const write = (text: string): void => {
    output.fire(text.replaceAll(/\r?\n/g, "\r\n"));
  };
  const open = (size: vscode.TerminalDimensions | undefined): void => {
    write(`\u001b[1m$ ${[command, ...given].join(" ")}\u001b[0m\n`);
    const env = { ...process.env, FORCE_COLOR: "1", COLUMNS: String(size?.columns ?? 100), PYTHONUNBUFFERED: "1" };
    running = spawn(command, given, { env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [running.stdout, running.stderr]) stream?.setEncoding("utf8").on("data", write);
    running.on("error", (error) => {
      write(`${error.message}\n`);
    });
    running.on("close", (code) => {
      if (code !== 0) write(`\n\u001b[31mThis ended with ${code ?? 1}.\u001b[0m\n`);
    });
  };
  const terminal = vscode.window.createTerminal({
    name: title,
    pty: {
      onDidWrite: output.event,
      open,
      close: () => running?.kill(),
      handleInput: (keys: string) => {
        if (keys === "\u0003") running?.kill();
      },
    },
  });
  terminal.show(true);
}
