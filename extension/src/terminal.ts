import { spawn, type ChildProcess } from "node:child_process";
import * as vscode from "vscode";

/**
 * Runs commands one after the other in a terminal, each only if the one before succeeded.
 *
 * @returns whether all of them did; closing the terminal ends them and is no success.
 */
export function runInTerminal(title: string, commands: readonly (readonly string[])[]): Promise<boolean> {
  return new Promise((resolve) => {
    const output = new vscode.EventEmitter<string>();
    let running: ChildProcess | undefined;
    let closed = false;
    const write = (text: string): void => {
      output.fire(text.replaceAll(/\r?\n/g, "\r\n"));
    };
    const run = ([command, ...given]: readonly string[], columns: number): Promise<number> =>
      new Promise((ended) => {
        const env = { ...process.env, FORCE_COLOR: "1", COLUMNS: String(columns), PYTHONUNBUFFERED: "1" };
        running = spawn(command ?? "", given, { env, stdio: ["ignore", "pipe", "pipe"] });
        for (const stream of [running.stdout, running.stderr]) {
          stream?.setEncoding("utf8").on("data", write);
        }
        running.on("error", (error) => {
          write(`${error.message}\n`);
          ended(127);
        });
        running.on("close", (code) => {
          ended(code ?? 1);
        });
      });
    const terminal = vscode.window.createTerminal({
      name: title,
      pty: {
        onDidWrite: output.event,
        open: (size: vscode.TerminalDimensions | undefined) => {
          void (async () => {
            for (const command of commands) {
              write(`\u001b[1m$ ${command.join(" ")}\u001b[0m\n`);
              const code = await run(command, size?.columns ?? 100);
              if (code !== 0 || closed) {
                write(`\n\u001b[31mThis ended with ${code}.\u001b[0m\n`);
                resolve(false);
                return;
              }
            }
            resolve(true);
          })();
        },
        close: () => {
          closed = true;
          running?.kill();
          resolve(false);
        },
        handleInput: (keys: string) => {
          if (keys === "\u0003") running?.kill();
        },
      },
    });
    terminal.show(true);
  });
}
