import * as vscode from "vscode";

const LEVELS = ["trace", "debug", "info", "warn", "error", "append", "appendLine"] as const;
const MOST_LINES = 200;

/** A log for people, whose last lines are kept for a report: an editor does not tell where, or whether, it writes them. */
export class Log {
  readonly channel: vscode.LogOutputChannel;
  readonly #lines: string[] = [];

  constructor(name: string) {
    const channel = vscode.window.createOutputChannel(name, { log: true });
    const kept = new Map<PropertyKey, unknown>(
      LEVELS.map((level) => {
        const write = channel[level].bind(channel) as (...said: unknown[]) => void;
        return [
          level,
          (...said: unknown[]) => {
            this.#keep(level, said);
            write(...said);
          },
        ];
      }),
    );
    this.channel = new Proxy({} as vscode.LogOutputChannel, {
      get: (_, property) => {
        const value: unknown = kept.get(property) ?? Reflect.get(channel, property);
        return typeof value === "function" && !kept.has(property) ? (value.bind(channel) as unknown) : value;
      },
    });
  }

  /** The last lines, each with its time and level. */
  last(count: number): string {
    return this.#lines.slice(-count).join("\n");
  }

  #keep(level: string, said: unknown[]): void {
    const words = said.map((one) => (one instanceof Error ? (one.stack ?? one.message) : String(one))).join(" ");
    this.#lines.push(`${new Date().toISOString()} [${level}] ${words.trimEnd()}`);
    this.#lines.splice(0, this.#lines.length - MOST_LINES);
  }
}
