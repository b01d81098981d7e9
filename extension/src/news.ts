import * as vscode from "vscode";
import type { ListedVariant } from "./protocol";
import { brief, sentence } from "./variants";

interface Unseen {
  uri: string;
  variant: ListedVariant;
}

/**
 * What searches found and nobody has looked at: a word in the status bar, until its difference or evidence was shown.
 *
 * A search takes minutes, and its author does something else meanwhile: a message that goes by is missed.
 */
export class News implements vscode.Disposable {
  readonly #item = vscode.window.createStatusBarItem("kernelLsp.found", vscode.StatusBarAlignment.Left, 9);
  readonly #changed = new vscode.EventEmitter<void>();
  readonly onDidChange = this.#changed.event;
  /** By file and kernels: what a later search finds takes the place of what an earlier one found. */
  readonly #unseen = new Map<string, Unseen>();
  readonly #seen = new Set<string>();

  constructor() {
    this.#item.name = "Kernel LSP: found";
    this.#item.command = "kernelLsp.showFound";
  }

  get count(): number {
    return this.#unseen.size;
  }

  get latest(): Unseen | undefined {
    return [...this.#unseen.values()].at(-1);
  }

  add(uri: string, variant: ListedVariant): void {
    if (this.#seen.has(variant.verdict)) return;
    const key = JSON.stringify([uri, ...variant.kernels]);
    this.#unseen.delete(key);
    this.#unseen.set(key, { uri, variant });
    this.#show();
  }

  seen(verdict: string): void {
    this.#seen.add(verdict);
    for (const [key, { variant }] of this.#unseen) if (variant.verdict === verdict) this.#unseen.delete(key);
    this.#show();
  }

  dispose(): void {
    this.#item.dispose();
    this.#changed.dispose();
  }

  #show(): void {
    const found = this.latest;
    if (found === undefined) this.#item.hide();
    else {
      const file = vscode.Uri.parse(found.uri).path.split("/").at(-1) ?? found.uri;
      this.#item.text = `$(verified) ${brief(found.variant)}`;
      this.#item.tooltip = `${file}: ${sentence(found.variant)}\nShow the difference`;
      this.#item.show();
    }
    this.#changed.fire();
  }
}
