import * as vscode from "vscode";
import type { News } from "./news";
import type { JobRecord } from "./protocol";
import type { Server } from "./server";
import { sentence, type Variants } from "./variants";

const PASSING_MS = 10_000;
const noted = new Set<string>();

export type ShowEvidence = (verdict: string, uri?: string) => Promise<void>;

/** Tells how a job ended, and offers what can be done with that. */
export async function tell(
  job: JobRecord,
  server: Server,
  variants: Variants,
  news: News,
  showEvidence: ShowEvidence,
): Promise<void> {
  if (job.state === "cancelled") {
    vscode.window.setStatusBarMessage(`$(circle-slash) ${job.title}: ${job.reason}`, PASSING_MS);
    return;
  }
  if (job.state === "failed") {
    if ((await vscode.window.showErrorMessage(`${job.title}: ${job.reason}`, "Show Log")) === "Show Log")
      server.log.show(true);
    return;
  }
  if (job.work === "check") {
    await tellOfCheck(job, server);
    return;
  }
  for (const note of job.notes) {
    if (noted.has(note)) continue; // once is enough of what is the same after every search
    noted.add(note);
    vscode.window.setStatusBarMessage(`$(info) ${note}`, PASSING_MS);
    server.log.info(note);
  }
  const found = (await variants.list(job.uri)).filter(
    (one) => one.fits && (job.kernel === null || one.kernels.includes(job.kernel)),
  );
  const own = found.find((one) => one.verdict === job.verdict);
  const best = own ?? (job.work === "refine" || job.work === "lower" ? found[0] : undefined);
  if (best === undefined) {
    const choices = job.verdict === null ? [] : ["Evidence"];
    const answer = await vscode.window.showInformationMessage(
      `${job.title}: ${job.reason}.`.replace("..", "."),
      ...choices,
    );
    if (answer === "Evidence" && job.verdict !== null) await showEvidence(job.verdict, job.uri);
    return;
  }
  news.add(job.uri, best);
  const message =
    own === undefined ? `${job.title}: ${job.reason}. Verified before: ${sentence(best)}` : sentence(best);
  const others = found.length > 1 ? [`All ${found.length}...`] : [];
  switch (await vscode.window.showInformationMessage(message, "Show Diff", "Apply", "Evidence", ...others)) {
    case "Show Diff":
      await variants.showDifference(job.uri, best.verdict);
      break;
    case "Apply":
      await variants.apply(job.uri, best.verdict);
      break;
    case "Evidence":
      await showEvidence(best.verdict, job.uri);
      break;
    case undefined:
      break;
    default:
      await variants.pick(job.uri, job.kernel ?? undefined);
  }
}

async function tellOfCheck(job: JobRecord, server: Server): Promise<void> {
  const uri = vscode.Uri.parse(job.uri);
  const { findings } = await server.request("checks", { textDocument: { uri: job.uri } }); // diagnostics come later
  const wrong = findings.some((one) => one.severity === "error");
  void vscode.commands.executeCommand("setContext", wrong ? "kernelLsp.foundMistake" : "kernelLsp.checked", true);
  const message = `${uri.path.split("/").at(-1) ?? job.uri}: ${job.reason}`;
  if (job.reason.startsWith("it has no workload")) {
    const answer = await vscode.window.showInformationMessage(message, "Draft a Workload");
    if (answer !== undefined) await server.run("draft", job.uri);
  } else if (!wrong) {
    void vscode.window.showInformationMessage(message);
  } else if ((await vscode.window.showWarningMessage(message, "Show Problems")) === "Show Problems") {
    await vscode.commands.executeCommand("workbench.actions.view.problems");
  }
}
