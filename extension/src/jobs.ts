import * as vscode from "vscode";
import type { JobRecord } from "./protocol";
import type { Server } from "./server";

/** The jobs of the server: each that was asked for has a toast while it goes on. */
export class Jobs implements vscode.Disposable {
  readonly #jobs = new Map<string, JobRecord>();
  readonly #changed = new vscode.EventEmitter<JobRecord | undefined>();
  readonly #ended = new vscode.EventEmitter<JobRecord>();
  readonly #subscriptions: vscode.Disposable[];
  readonly onDidChange = this.#changed.event;
  /** A job that was asked for came to its end, whichever. */
  readonly onDidEnd = this.#ended.event;

  constructor(readonly server: Server) {
    this.#subscriptions = [
      server.onJob((job) => {
        this.#hear(job);
      }),
      server.onLost(() => {
        this.#jobs.clear();
        this.#changed.fire(undefined);
      }),
    ];
  }

  /** Those under way, oldest first. */
  get underWay(): JobRecord[] {
    return [...this.#jobs.values()];
  }

  async stop(id: string): Promise<void> {
    await this.server.request("cancelJob", { id });
  }

  dispose(): void {
    for (const one of [...this.#subscriptions, this.#changed, this.#ended]) one.dispose();
  }

  #hear(job: JobRecord): void {
    const isNew = !this.#jobs.has(job.id);
    if (hasEnded(job)) {
      this.#jobs.delete(job.id);
    } else {
      this.#jobs.set(job.id, job);
      if (isNew && !job.unasked) void this.#toast(job);
    }
    this.#changed.fire(job);
    if (hasEnded(job) && !job.unasked) this.#ended.fire(job);
  }

  #toast(first: JobRecord): Thenable<void> {
    const options = { location: vscode.ProgressLocation.Notification, title: first.title, cancellable: true };
    return vscode.window.withProgress(options, (progress, token) => {
      let shown = 0;
      const show = (job: JobRecord): void => {
        const done = job.percentage;
        progress.report({ message: job.text, increment: done - shown });
        shown = done;
      };
      token.onCancellationRequested(() => {
        this.stop(first.id).catch((error: unknown) => {
          this.server.complain(error);
        });
      });
      show(first);
      return new Promise((resolve) => {
        const listening = this.onDidChange((job) => {
          if (job?.id === first.id && !hasEnded(job)) {
            show(job);
          } else if (!this.#jobs.has(first.id)) {
            listening.dispose();
            resolve();
          }
        });
      });
    });
  }
}

/** Whether a job is over, however it ended. */
export function hasEnded(job: JobRecord): boolean {
  return job.state !== "waiting" && job.state !== "running";
}
