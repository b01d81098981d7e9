import type { Asked, Sent } from "../evidence";
import type { CaseTiming, KernelResources, Opcodes, SearchTurn, Verdict, VerdictEvidence } from "../protocol";
import { blocks, intervals, redraw, roofline } from "./charts";
import { h, more, section, table } from "./elements";

declare function acquireVsCodeApi(): { postMessage(message: Asked): void };

const editor = acquireVsCodeApi();
const root = document.getElementById("page") ?? document.body;
const opcodes = h(
  "div",
  { "aria-live": "polite" },
  h("p", { class: "quiet" }, "Both versions are compiled and compared ..."),
);

window.addEventListener("message", ({ data }: MessageEvent<Sent>) => {
  if ("evidence" in data) {
    root.replaceChildren(...page(data.evidence, data.applies));
    root.removeAttribute("aria-busy");
    redraw();
  } else {
    opcodes.replaceChildren("opcodes" in data ? difference(data.opcodes) : h("p", { class: "quiet" }, data.noOpcodes));
  }
});
new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
editor.postMessage("ready");

function page({ name, title, verdict, turns }: VerdictEvidence, applies: boolean): HTMLElement[] {
  const { evidence, cases } = verdict;
  const parts = [head(name, title, verdict, applies)];
  if (cases.length > 0) parts.push(...timing(cases, evidence.discarded_blocks));
  parts.push(checks(verdict), resources(evidence.baseline_resources, evidence.candidate_resources));
  parts.push(section("Instructions", opcodes));
  if (turns.length > 0) parts.push(section("The search", transcript(turns, verdict.id)));
  parts.push(circumstances(verdict), repeat(evidence.command));
  return parts;
}

function head(name: string, title: string, verdict: Verdict, applies: boolean): HTMLElement {
  const { evidence } = verdict;
  const where = evidence.device === null ? "" : ` · ${evidence.device.name}`;
  return h(
    "header",
    {},
    h("p", { class: `outcome ${verdict.verdict.toLowerCase()}` }, verdict.verdict.replaceAll("_", " ")),
    h("h1", {}, title),
    h("p", {}, verdict.reason),
    h(
      "p",
      { class: "quiet" },
      `${name} · ${evidence.created.replace("T", " ").replace("Z", " UTC")}${where} · proposed by ${evidence.candidate_origin}`,
    ),
    h(
      "p",
      { class: "buttons" },
      applies ? button("Show Diff", "diff") : null,
      applies ? button("Apply", "apply") : null,
      button("Open as Text", "text", true),
    ),
  );
}

function timing(cases: CaseTiming[], discarded: number): HTMLElement[] {
  const us = (value: number): string =>
    value >= 1000 ? `${(value / 1000).toPrecision(3)} ms` : `${value.toPrecision(3)} µs`;
  const figures = table(
    "Times by case",
    ["case", "baseline", "candidate", "speedup", "95 % interval", "mode", "launches"],
    cases.map((one) => [
      one.case,
      us(one.baseline_us),
      us(one.candidate_us),
      `${one.speedup.toFixed(3)}x`,
      `${one.interval[0].toFixed(3)} - ${one.interval[1].toFixed(3)}`,
      one.mode,
      one.launches,
    ]),
  );
  const measured = Math.max(...cases.map((one) => one.blocks.length));
  const confirmed = Math.max(...cases.map((one) => one.confirmation_blocks));
  const said = `${measured} blocks, the last ${confirmed} (triangles) in fresh processes and memory; the figures above are those of the fresh ones alone. ${discarded} discarded, for the clock moved.`;
  const roof = roofline(cases);
  return [
    section("Speedup by case", intervals(cases), figures),
    section("Every block, in the order of measuring", blocks(cases), h("p", { class: "quiet" }, said)),
    ...(roof === null ? [] : [section("How near the memory's speed", roof)]),
  ];
}

function checks({ evidence }: Verdict): HTMLElement {
  const order = ["failed", "passed", "skipped"] as const;
  const marks = { failed: "✗", passed: "✓", skipped: "–" };
  const names = { failed: "Failed", passed: "Done, nothing was wrong", skipped: "Not done" };
  const lists = order.flatMap((status) => {
    const found = evidence.checks.filter((one) => one.status === status);
    if (found.length === 0) return [];
    const rows = found.map((one) =>
      h(
        "li",
        { class: status },
        h("span", { "aria-hidden": "true" }, marks[status]),
        ` ${one.name}`,
        one.case === null ? null : h("span", { class: "quiet" }, ` · ${one.case}`),
        one.detail === "" ? null : h("span", { class: "quiet" }, ` · ${one.detail}`),
      ),
    );
    return [h("h3", {}, names[status]), h("ul", { class: "checks" }, ...rows)];
  });
  const wrong = evidence.mismatch;
  const figure = (value: number | string): string => (typeof value === "number" ? value.toPrecision(3) : value);
  const errors = table(
    "Error against the float64 reference",
    ["case", "inputs", "baseline max", "candidate max", "baseline RMS", "candidate RMS"],
    evidence.errors.map((one) => [
      one.case,
      one.family,
      figure(one.baseline_max),
      figure(one.candidate_max),
      figure(one.baseline_rms),
      figure(one.candidate_rms),
    ]),
  );
  return section(
    "What was checked",
    wrong === null
      ? null
      : h(
          "p",
          { class: "failed" },
          `${wrong.case}, ${wrong.family}: at [${wrong.index.join(", ")}] it is ${wrong.actual} and should be ${wrong.expected}.`,
        ),
    ...lists,
    evidence.errors.length === 0 ? null : more("Errors against the float64 reference, in units of rounding", errors),
  );
}

function resources(before: KernelResources[], after: KernelResources[]): HTMLElement {
  if (before.length === 0 && after.length === 0)
    return section("Resources", h("p", { class: "quiet" }, "It was not built."));
  const row = (side: string, one: KernelResources): (string | number)[] => [
    side,
    one.name,
    one.registers,
    one.shared_bytes,
    one.spill_bytes ?? "?",
    one.threads ?? "?",
    one.occupancy === null ? "?" : `${(one.occupancy * 100).toFixed(0)} %`,
    one.limiter ?? "",
  ];
  const columns = ["", "kernel", "registers", "shared bytes", "spilled bytes", "threads", "occupancy", "limit"];
  return section(
    "Resources",
    table("Resources", columns, [
      ...before.map((one) => row("baseline", one)),
      ...after.map((one) => row("candidate", one)),
    ]),
  );
}

function difference({ arch, kernels }: Opcodes): HTMLElement {
  const parts = kernels.map(({ name, baseline, candidate }) => {
    const kinds = [...new Set([...Object.keys(baseline), ...Object.keys(candidate)])];
    const changed = kinds.filter((kind) => (baseline[kind] ?? 0) !== (candidate[kind] ?? 0));
    const total = (side: Record<string, number>): number => Object.values(side).reduce((sum, count) => sum + count, 0);
    const by = (kind: string): number => (candidate[kind] ?? 0) - (baseline[kind] ?? 0);
    changed.sort((a, b) => Math.abs(by(b)) - Math.abs(by(a)));
    const signed = (count: number): string => (count > 0 ? `+${count}` : String(count));
    const rows = [
      ["all", total(baseline), total(candidate), signed(total(candidate) - total(baseline))],
      ...changed.map((kind) => [kind, baseline[kind] ?? 0, candidate[kind] ?? 0, signed(by(kind))]),
    ];
    const caption = `${name}${arch === null ? "" : ` on ${arch}`}: instructions in the machine code, of the kinds whose number changes`;
    return h(
      "div",
      {},
      h("p", { class: "quiet" }, caption),
      table(caption, ["instruction", "baseline", "candidate", "change"], rows),
    );
  });
  return h("div", {}, ...parts);
}

function transcript(turns: SearchTurn[], verdict: string): HTMLElement {
  const rows = turns.map((turn) => {
    const outcome =
      turn.outcome === null
        ? "raced or dropped, not judged in full"
        : `${turn.outcome}${turn.speedup === null ? "" : ` ${turn.speedup.toFixed(3)}x`}`;
    const name = turn.label ?? `candidate ${turn.candidate.slice(0, 8)}`;
    return h(
      "li",
      {},
      `${name}: `,
      h("span", { class: "quiet" }, outcome),
      turn.prompt === null
        ? null
        : more("What the model was asked", h("pre", { tabindex: "0" }, conversation(turn.prompt))),
      turn.answer === null ? null : more("What it answered", h("pre", { tabindex: "0" }, turn.answer)),
    );
  });
  const judged = turns.filter((turn) => turn.outcome !== null).length;
  return more(
    `${turns.length} candidates in the search that came to ${verdict.slice(0, 8)}, ${judged} of them judged in full`,
    h("ol", {}, ...rows),
  );
}

/** A prompt is a list of messages as JSON. */
function conversation(prompt: string): string {
  const messages = JSON.parse(prompt) as { role: string; content: string }[];
  return messages.map(({ role, content }) => `${role}:\n${content}`).join("\n\n");
}

function circumstances({ evidence, seconds }: Verdict): HTMLElement {
  const { device } = evidence;
  const rows: string[][] = [];
  if (device !== null) {
    rows.push(["GPU", `${device.name} (${device.arch}), driver ${device.driver}`]);
    if (device.sm_clock_mhz !== null) rows.push(["SM clock", `${device.sm_clock_mhz.join(" to ")} MHz`]);
    if (device.power_w !== null) rows.push(["power", `${device.power_w} W`]);
    if (device.temperature_c !== null) rows.push(["temperature", `${device.temperature_c} °C`]);
    if (device.throttle.length > 0) rows.push(["throttled by", device.throttle.join(", ")]);
    if (device.others_busy_percent !== null) rows.push(["others kept it busy", `${device.others_busy_percent} %`]);
    if (device.copy_bandwidth_gbs !== null)
      rows.push(["measured bandwidth, copying", `${device.copy_bandwidth_gbs.toFixed(0)} GB/s`]);
    if (typeof device.read_bandwidth_gbs === "number")
      rows.push(["measured bandwidth, reading", `${device.read_bandwidth_gbs.toFixed(0)} GB/s`]);
  }
  rows.push(["built by", evidence.build_way], ["seed", String(evidence.seed ?? "none")]);
  rows.push(["candidate confined by", evidence.protections.join(", ") || "nothing"]);
  rows.push(...Object.entries(evidence.versions));
  rows.push(...Object.entries(evidence.settings).map(([key, value]) => [key, String(value)]));
  rows.push(...Object.entries(seconds).map(([stage, time]) => [`seconds, ${stage}`, time.toPrecision(3)]));
  return section("Circumstances", table("Circumstances", ["", ""], rows, true));
}

function repeat(command: string): HTMLElement {
  return section(
    "To repeat it",
    h("pre", { tabindex: "0" }, command),
    h("p", { class: "buttons" }, button("Copy", "copy", true)),
  );
}

function button(text: string, asks: Asked, quiet = false): HTMLElement {
  const found = h("button", { type: "button", ...(quiet ? { class: "secondary" } : {}) }, text);
  found.addEventListener("click", () => {
    editor.postMessage(asks);
  });
  return found;
}
