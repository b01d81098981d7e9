// Written by scripts/protocol.py from the server's records: change those, and run it again.

/** What the server says beyond the protocol; `docs/lsp-protocol.md` describes each message. */

export type Command =
  | "refine"
  | "lower"
  | "check"
  | "profile"
  | "compare"
  | "baseline"
  | "rewrite"
  | "fix"
  | "capture"
  | "cancel"
  | "ask"
  | "apply"
  | "difference"
  | "evidence"
  | "draft"
  | "adopt"
  | "captures"
  | "explain"
  | "machineCode"
  | "trust"
  | "untrust";

export type Work = "refine" | "lower" | "check" | "profile" | "compare" | "baseline" | "rewrite" | "fix" | "capture";

/** By their methods, after `kernelLsp/`. */
export interface Requests {
  startJob: { params: StartJob; result: StartedJob };
  cancelJob: { params: OneJob; result: JobCancelled };
  jobs: { params: Nothing; result: JobList };
  evidence: { params: OneVerdict; result: EvidencePage };
  status: { params: Nothing; result: ServerStatus };
  kernels: { params: Nothing; result: KernelFiles };
  checks: { params: OneText; result: CheckedText };
  variants: { params: OneText; result: VariantList };
  variant: { params: OneVariant; result: VariantTexts };
  machineCode: { params: OneText; result: MachineCodeList };
  opcodes: { params: OneVariant; result: Opcodes };
}

/** A job. */
export interface JobRecord {
  id: string;
  work: Work;
  uri: string;
  version: number | null;
  kernel: string | null;
  /** Of a rewrite, or what a kernel for a module is written in. */
  label: string | null;
  /** What is done to what, for a person. */
  title: string;
  state: State;
  /** Its state in one line. */
  text: string;
  /** What it does now, a few words. */
  doing: string;
  /** How much of its work is done, at most 99; 0 where that is not known. */
  percentage: number;
  /** Seconds since it was given its turn. */
  elapsed: number;
  /** The search's last report; null before the first. */
  progress: SearchProgress | null;
  /** Id of the verdict that its result rests on. */
  verdict: string | null;
  /** How it ended, one sentence. */
  reason: string;
  /** Sentences on what was left out, such as why no model was asked. */
  notes: string[];
  /** True if the server started it by itself, so that its end is not announced. */
  unasked: boolean;
}

export type State = "waiting" | "running" | "done" | "failed" | "cancelled";

/** One moment of a search. */
export interface SearchProgress {
  /** What is done now, a few words: `building 12 candidates`, `racing 4 candidates`, `confirming`. */
  doing: string;
  /** Candidates proposed so far. */
  proposed: number;
  /** Of these, how many compiled. */
  built: number;
  /** Of these, how many were correct. */
  correct: number;
  /** Of these, how many were timed against the baseline. */
  raced: number;
  /** Seconds since it was asked for. */
  elapsed: number;
  /** Seconds it may take. */
  budget: number;
  /** The best candidate so far. */
  best: Best | null;
  /** The conversation with a model. */
  talking: Talking;
}

/** The best candidate so far; `speedup` and `interval` are baseline over candidate. */
export interface Best {
  label: string;
  speedup: number;
  interval: [number, number];
  confirmed: boolean;
}

/** The progress of the conversation with a model; `turn` is 0 if there is none. */
export interface Talking {
  /** The turn under way, the furthest of all trajectories, from 1. */
  turn: number;
  /** How many there may be. */
  turns: number;
  /** Generated so far. */
  tokens: number;
  /** Tokens a second while generating, over all trajectories together. */
  rate: number;
  /** What the latest second opinion would do; empty without one. */
  plan: string;
}

/** A request to start a job. */
export interface StartJob {
  work: Work;
  textDocument: TextDocument;
  kernel?: string | null;
  label?: string | null;
}

/** A file, by its URI. */
export interface TextDocument {
  uri: string;
}

/** A started job; `joined` is true if it was already under way. */
export interface StartedJob {
  id: string;
  work: Work;
  uri: string;
  version: number | null;
  kernel: string | null;
  label: string | null;
  title: string;
  state: State;
  text: string;
  doing: string;
  percentage: number;
  elapsed: number;
  progress: SearchProgress | null;
  verdict: string | null;
  reason: string;
  notes: string[];
  unasked: boolean;
  joined: boolean;
}

/** A job. */
export interface OneJob {
  id: string;
}

/** The result of cancelling a job; `cancelled` is true if it was under way. */
export interface JobCancelled {
  cancelled: boolean;
}

/** No parameters. */
export type Nothing = Record<string, never>;

/** The jobs under way and the last 50 ended ones, oldest first. */
export interface JobList {
  jobs: JobRecord[];
}

/** A verdict by its id or a prefix of the id; the file's settings name the store. */
export interface OneVerdict {
  verdict: string;
  textDocument?: TextDocument | null;
}

/**
 * The evidence of a verdict as a page for a webview: HTML that loads nothing and allows scripts only by a nonce. Its
 * script posts `{asks, text}` to the editor, where `asks` is `diff`, `apply`, `text` (the Markdown), `copy` (of `text`)
 * or `instructions`, answered by `{html}`, an `Opcodes.section`, or by `{problem}`, why there is none.
 */
export interface EvidencePage {
  verdict: string;
  name: string;
  label: string;
  title: string;
  markdown: string;
  page: string;
}

/** The state of the server. */
export interface ServerStatus {
  version: string;
  gpu: GpuName | null;
  /** The language model that is served; null where none is. */
  model: string | null;
  /** Those in force. */
  proposers: string[];
  /** True if a search can be started here: there is a GPU, or `refine.untimed` is set for a file in sight. */
  searches: boolean;
  /** Why the text that came last could not be compiled, where that is not the text's fault; else null. */
  trouble: string | null;
}

/** The GPU used for timing. */
export interface GpuName {
  name: string;
  arch: string;
}

/** The files with kernels or a plain module in the workspace; `complete` is false if the list was cut off. */
export interface KernelFiles {
  files: FileRow[];
  complete: boolean;
}

/** The known facts on a file. */
export interface FileRow {
  uri: string;
  language: string;
  trusted: boolean;
  /** True if it has a usable one. */
  workload: boolean;
  /** Why its workload, or the file, cannot be used. */
  problem: string | null;
  /** The time of the text as it is, from its last measurement. */
  measured: string | null;
  /** The latest verdict on a version of the file. */
  last: LastVerdict | null;
  /** The result of the last check of the text as it is, such as `14 checks passed`; null if none is known. */
  checked: string | null;
  /** Whether that check found nothing wrong; null if it compared nothing. */
  passed: boolean | null;
  /** Line of the name of its plain PyTorch module, from 0, for which a kernel can be generated; null without. */
  module: number | null;
  kernels: KernelRow[];
}

/** The latest verdict on a file; `verdict` is its id. */
export interface LastVerdict {
  verdict: string;
  outcome: string;
  label: string;
  speedup: number | null;
}

/** The known facts on a kernel. */
export interface KernelRow {
  name: string;
  /** From 0. */
  line: number;
  /** Of its hungriest instance, from earlier builds; null where there are none. */
  facts: KernelResources | null;
  /** What got worse since the baseline in the repository, a sentence each. */
  drift: string[];
  /** The best variant for the text as it is. */
  best: Variant | null;
  /** How many there are for it. */
  variants: number;
}

/** Compile facts of one kernel of one side, as launched. */
export interface KernelResources {
  /** What the user calls it. */
  name: string;
  /** Per thread. */
  registers: number;
  /** Static and dynamic shared memory per block, without what the system reserves. */
  shared_bytes: number;
  /** Stored and loaded per thread; None where ptxas was not asked. */
  spill_bytes: number | null;
  /** Per thread; without spills it is a local array indexed at run time, or a call's frame. */
  stack_bytes: number;
  /** Per block, the most that a launch gives it; None where no launch is known. */
  threads: number | null;
  /** Share of the multiprocessor's warps that can be resident, 0 to 1. */
  occupancy: number | null;
  /** What keeps it from being higher. */
  limiter: string | null;
  /** Its symbol. */
  entry: string;
  /** The part of `shared_bytes` that launches ask for. */
  dynamic_shared_bytes: number;
  /** barriers, parameter_bytes: named barriers used, and the size of its parameters. */
  barriers: number;
  parameter_bytes: number;
  /** Limit on a block by `__launch_bounds__` or Triton's warps, all extents multiplied. */
  max_threads: number | null;
  /** What would raise the occupancy, largest gain first. */
  cliffs: Cliff[];
  /** Hash of its machine code. */
  code: string | null;
  /** Of tensor memory, that a block allocates; None where it is not known. */
  tensor_columns: number | null;
  /**
   * How many blocks of a multiprocessor find room for their columns at a time, while others wait; None where it is not
   * known, or nothing is allocated.
   */
  tensor_blocks: number | null;
}

/**
 * The smallest change of one quantity, all others kept, that raises occupancy. For the block size it is the best one,
 * of equally good ones the nearest: a smaller block costs nothing in itself.
 */
export interface Cliff {
  /** What to change. */
  lever: Lever;
  /**
   * By how much, in its own unit (registers per thread, bytes per block, barriers per block, threads per block);
   * negative except for threads, where more can be better too.
   */
  change: number;
  /** Blocks per multiprocessor after it. */
  blocks: number;
  /** Occupancy after it, 0 to 1. */
  share: number;
}

export type Lever = "registers" | "shared memory" | "barriers" | "block size";

/** A variant that was verified to be faster. */
export interface Variant {
  /** Id of the verdict that confirmed it. */
  verdict: string;
  /** What was changed. */
  label: string;
  /** The verdict in one line. */
  title: string;
  speedup: number;
  interval: [number, number];
  /** Those that it changes. */
  kernels: string[];
  /** True while its final checks are under way, which may take it back. */
  pending: boolean;
}

/** A text. */
export interface OneText {
  textDocument: TextDocument;
}

/** The last check of a text. */
export interface CheckedText {
  /** Its result in a sentence; null if the text was not checked. */
  reason: string | null;
  /** True if the text was changed since. */
  older: boolean;
  /** Those of the text as it is. */
  kernels: CheckedKernel[];
  families: CheckedFamily[];
  findings: CheckedFinding[];
}

/** A kernel of a checked text; `line` is that of its name, from 0. */
export interface CheckedKernel {
  name: string;
  line: number;
}

/** One check of a run. */
export interface CheckedFamily {
  /** What was checked, such as `inputs: plain`, one family of inputs. */
  name: string;
  /** Of the workload; null for what concerns all of them. */
  case: string | null;
  /** `passed`, `failed` or `skipped`. */
  status: string;
  /** Why it failed or was skipped. */
  detail: string;
}

/** A finding of a check. */
export interface CheckedFinding {
  /** The one that it stands in; null outside of all. */
  kernel: string | null;
  /** Its id. */
  rule: string;
  severity: string;
  message: string;
  /** Of the file that it is in. */
  uri: string;
  /** From 0. */
  line: number;
}

/** The variants of a text, best first. */
export interface VariantList {
  variants: ListedVariant[];
}

/** One of several variants; `fits` is true if it applies to the text as it is now. */
export interface ListedVariant {
  verdict: string;
  label: string;
  title: string;
  speedup: number;
  interval: [number, number];
  kernels: string[];
  pending: boolean;
  fits: boolean;
}

/** A verdict on a text. */
export interface OneVariant {
  textDocument: TextDocument;
  verdict: string;
}

/** A variant with the texts that it makes. */
export interface VariantTexts {
  verdict: string;
  label: string;
  title: string;
  speedup: number;
  interval: [number, number];
  kernels: string[];
  pending: boolean;
  /** True if its only file does not exist yet. */
  creates: boolean;
  files: FileText[];
}

/** One file as a variant would change it. */
export interface FileText {
  uri: string;
  text: string;
}

/** The machine code of a text's kernels, for the first target architecture. */
export interface MachineCodeList {
  kernels: KernelCode[];
}

/** The machine code of one kernel, in order. */
export interface KernelCode {
  arch: string;
  name: string;
  instructions: MachineInstruction[];
  /** What it was made from, the shorter TTGIR before PTX; empty where the compiler keeps none. */
  intermediate: IntermediateCode[];
}

/** One instruction. */
export interface MachineInstruction {
  /** Bytes from the start of its function. */
  offset: number;
  /** guard, opcode, operands: as nvdisasm prints them; `guard` may be empty. */
  guard: string;
  opcode: string;
  operands: string;
  /** Of the file, from 1; null where it comes from elsewhere. */
  line: number | null;
  /** Registers in use at it, for one thread. */
  live: number;
  /** Its purpose, if that matters for the kernel's speed. */
  role: string | null;
  /** True if it is in an innermost loop. */
  looped: boolean;
  /** Names by which branches have it as their target. */
  labels: string[];
}

/** Code that a compiler made on its way to machine code; `name` is `PTX`, or `TTGIR` for Triton's own. */
export interface IntermediateCode {
  name: string;
  lines: IntermediateLine[];
}

/** One line of PTX or the like; `line` is that of the file which it was made from, from 1; null if there is none. */
export interface IntermediateLine {
  text: string;
  line: number | null;
}

/** The instruction counts of a verdict's kernels, compiled again for `arch`, the architecture it was timed on. */
export interface Opcodes {
  arch: string | null;
  kernels: KernelOpcodes[];
  /** The counts as a part of the evidence page, in HTML. */
  section: string;
}

/** The number of instructions of each kind of a kernel on both sides; empty for a side without the kernel. */
export interface KernelOpcodes {
  name: string;
  baseline: Record<string, number>;
  candidate: Record<string, number>;
}
