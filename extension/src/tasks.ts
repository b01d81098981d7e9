import * as vscode from "vscode";
import type { Server } from "./server";

export const TYPE = "kernel-lsp";

interface Definition extends vscode.TaskDefinition {
  paths?: string[];
  strict?: boolean;
}

/** The task that checks files as the command line does; its findings become problems. */
export class CheckTasks implements vscode.TaskProvider {
  constructor(readonly server: Server) {}

  provideTasks(): vscode.Task[] {
    return this.server.command === "" ? [] : [this.#task({ type: TYPE, paths: ["."] })];
  }

  resolveTask(task: vscode.Task): vscode.Task | undefined {
    return this.server.command === "" ? undefined : this.#task(task.definition);
  }

  #task(definition: Definition): vscode.Task {
    const given = ["check", ...(definition.strict === true ? ["--strict"] : []), ...(definition.paths ?? ["."])];
    const run = new vscode.ProcessExecution(this.server.command, given, { env: { NO_COLOR: "1", COLUMNS: "500" } });
    const name = `check ${(definition.paths ?? ["."]).join(" ")}`;
    const task = new vscode.Task(definition, vscode.TaskScope.Workspace, name, TYPE, run, "$kernel-lsp");
    task.group = vscode.TaskGroup.Build;
    return task;
  }
}
