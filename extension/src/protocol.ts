// Written by scripts/protocol.py from the server's records: change those, and run it again.

/** What the server says beyond the protocol; `docs/lsp-protocol.md` describes each message. */

export type Command =
  | "refine"
  | "lower"
  | "check"
  | "compare"
  | "baseline"
  | "rewrite"
  | "cancel"
  | "apply"
  | "evidence"
  | "draft"
  | "trust"
  | "untrust";

export type Work = "refine" | "lower" | "check" | "compare" | "baseline" | "rewrite";

/** By their methods, after `kernelLsp/`. */
export interface Requests {
  startJob: { params: StartJob; result: StartedJob };
  cancelJob: { params: OneJob; result: JobCancelled };
  jobs: { params: Nothing; result: JobList };
  evidence: { params: OneVerdict; result: VerdictEvidence };
  status: { params: Nothing; result: ServerStatus };
  kernels: { params: Nothing; result: KernelFiles };
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
  /** Seconds since it was given its turn. */
  elapsed: number;
  /** The search's last report; null before the first. */
  progress: Progress | null;
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
export interface Progress {
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
  /** Seconds since the start. */
  elapsed: number;
  /** Seconds the search may take. */
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
  elapsed: number;
  progress: Progress | null;
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

/** The evidence of a verdict. */
export interface VerdictEvidence {
  /** Its short id. */
  name: string;
  /** The verdict in one line. */
  title: string;
  /** The whole of it as text. */
  markdown: string;
  verdict: Verdict;
  /** Those of the search that led to the verdict. */
  turns: SearchTurn[];
}

/** The product. */
export interface Verdict {
  /** Content address: hash of both texts, workload, settings, toolchain and device. */
  id: string;
  /** The outcome. */
  verdict: Outcome;
  /** The stage that decided it. */
  stage: Stage;
  /** One sentence for a person. */
  reason: string;
  /** Paired timing by case; empty when timing was not reached. */
  cases: CaseTiming[];
  /** Baseline over candidate, geometric mean over cases; None untimed. */
  speedup: number | null;
  /** 95 % interval of `speedup`. */
  interval: [number, number] | null;
  /** Wall time by stage, with `total`. */
  seconds: Record<string, number>;
  evidence: Evidence;
}

export type Outcome =
  | "FASTER"
  | "SLOWER"
  | "SAME"
  | "NOT_WORTH_IT"
  | "AMBIGUOUS"
  | "WRONG"
  | "ILLEGITIMATE"
  | "BUILD_FAILED"
  | "RUN_FAILED"
  | "TIMED_OUT"
  | "UNTIMED";

export type Stage = "parse" | "build" | "run" | "correct" | "legitimate" | "timed";

/** The paired timing of one case. */
export interface CaseTiming {
  /** Its parameters, as text. */
  case: string;
  /**
   * `cold` (L2 flushed before each launch) or `short` (too short for events: many launches between two of them, each on
   * inputs of its own).
   */
  mode: string;
  /** Launches per segment. */
  launches: number;
  /** baseline_us, candidate_us: median time of one launch, microseconds. */
  baseline_us: number;
  candidate_us: number;
  /** Baseline over candidate, with its 95 % interval. */
  speedup: number;
  interval: [number, number];
  /** Compulsory traffic: each input read once, each output written once. */
  bytes_moved: number;
  baseline_roofline_share: number | null;
  /** What memory was seen to take for that traffic, over the candidate's time; None unknown. */
  roofline_share: number | null;
  /** Log ratio candidate / baseline of each block, in order, confirmation blocks last. */
  blocks: number[];
  /** How many of `blocks` belong to the confirmation. */
  confirmation_blocks: number;
  /**
   * baseline_call_us, candidate_call_us: an eager call until the GPU is done, by the parent's clock; None where no gain
   * was confirmed.
   */
  baseline_call_us: number | null;
  candidate_call_us: number | null;
}

/**
 * Everything a verdict rests on. `baseline_opcodes` and `candidate_opcodes` count the instructions of all kernels by
 * kind (`build.opcodes.kind_of`), where the verdict is FASTER; `sustained` is there where power limits the kernel.
 * `protections` are what confined the candidate's process (`runner.sandbox`); empty if it was never started. `traces`
 * show what it ran on the GPU, `xids` which faults the driver reported meanwhile, by NVIDIA's numbers. `build_way` is
 * `fast` or `full` where the candidate has `extensions`, else that of its build; `build_arch` is what it was compiled
 * for, empty where nothing was.
 */
export interface Evidence {
  created: string;
  baseline_digest: string;
  candidate_digest: string;
  candidate_label: string;
  candidate_origin: string;
  kernel_path: string;
  workload_path: string;
  sources: Record<string, string>;
  seed: number | null;
  checks: Check[];
  errors: ErrorFigures[];
  mismatch: Mismatch | null;
  baseline_resources: KernelResources[];
  candidate_resources: KernelResources[];
  device: DeviceState | null;
  versions: Record<string, string>;
  build_way: string;
  build_arch: string;
  build_log: string;
  settings: Record<string, boolean | number | string>;
  discarded_blocks: number;
  protections: string[];
  command: string;
  traces: Trace[];
  xids: number[];
  sustained: SustainedRun | null;
  baseline_opcodes: Record<string, number>;
  candidate_opcodes: Record<string, number>;
  extensions: ExtensionRecord[];
}

/** One check that ran, or that was skipped; `detail` says why. */
export interface Check {
  name: string;
  status: CheckStatus;
  detail: string;
  case: string | null;
}

export type CheckStatus = "passed" | "failed" | "skipped";

/**
 * Error against the float64 oracle on one case and input family. Both figures are in units of `eps(dtype) * (|expected|
 * + rms(expected))`: the largest one and the root mean square.
 */
export interface ErrorFigures {
  case: string;
  family: string;
  baseline_max: number | string;
  baseline_rms: number | string;
  candidate_max: number | string;
  candidate_rms: number | string;
}

/**
 * The first wrong element of an output. `index` is its position in the output tensor, `count` the number of wrong
 * elements of `total`; values are text so that NaN and infinities survive JSON.
 */
export interface Mismatch {
  case: string;
  family: string;
  output: number;
  index: number[];
  expected: string;
  actual: string;
  count: number;
  total: number;
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
  /** Named barriers used. */
  barriers: number;
  /** Size of its parameters. */
  parameter_bytes: number;
  /** Limit on a block by `__launch_bounds__` or Triton's warps, all extents multiplied. */
  max_threads: number | null;
  /** What would raise the occupancy, largest gain first. */
  cliffs: Cliff[];
  /** Hash of its machine code. */
  code: string | null;
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

/** The GPU's state while timing. Clocks in MHz, power in W, temperature in degrees Celsius. */
export interface DeviceState {
  name: string;
  uuid: string;
  arch: string;
  driver: string;
  sm_clock_mhz: [number, number] | null;
  power_w: number | null;
  temperature_c: number | null;
  throttle: string[];
  others_busy_percent: number | null;
  shared: boolean;
  copy_bandwidth_gbs: number | null;
  read_bandwidth_gbs: number | null;
  model_servers: ModelServerState[];
}

/** A model server on the GPU while timing. */
export interface ModelServerState {
  /** The model's. */
  name: string;
  /** Its first process. */
  pid: number | null;
  /** What kept it quiet (`kernel_lsp.model.gate.Quiet`): paused, idle, asleep or gone; or busy, if nothing did. */
  how: string;
  /**
   * Share of time that it kept the multiprocessors busy meanwhile, the largest sample of the driver's; None where there
   * was none.
   */
  busy_percent: number | null;
}

/** The candidate's work on the GPU for one case, as CUPTI traced it. */
export interface Trace {
  /** Its parameters, as text. */
  case: string;
  /** Whether it is what was timed, run again; otherwise one launch by itself. */
  timed: boolean;
  /** How many. */
  launches: number;
  /** From the start of the first operation to the end of the last, microseconds. */
  span_us: number;
  /** Time of its own kernels in the time of all that computes; None where nothing does. */
  own_share: number | null;
  /** The baseline's. */
  baseline_own_share: number | null;
  /** How long one launch took by the stopwatch; None where it was not timed. */
  claimed_us: number | null;
  /** What ran, longest first, the longest twelve. */
  groups: TracedGroup[];
  /** Kernels that its build holds and that did not run. */
  never_launched: string[];
}

/** All operations of one name in a trace. */
export interface TracedGroup {
  /** `kernel`, `memcpy` or `memset`. */
  kind: string;
  /** C++ kernels as their declaration. */
  name: string;
  /** Whether it is one of the version's own kernels. */
  own: boolean;
  /** How often it ran. */
  calls: number;
  /** How long all of them took together, microseconds. */
  us: number;
  /** CUDA's numbers of those it ran on. */
  streams: number[];
}

/** Both sides under a steady load for seconds, one launch after another without pause. */
export interface SustainedRun {
  /** Its parameters, as text. */
  case: string;
  /** GPU time of each side. */
  seconds: number;
  /** baseline_us, candidate_us: mean time of one launch, microseconds. */
  baseline_us: number;
  candidate_us: number;
  /** Baseline over candidate, with its 95 % interval. */
  speedup: number;
  interval: [number, number];
  /** baseline_mj, candidate_mj: energy of one launch, millijoules; None where the GPU does not count it. */
  baseline_mj: number | null;
  candidate_mj: number | null;
  /** baseline_w, candidate_w: mean power. */
  baseline_w: number | null;
  candidate_w: number | null;
  /** The power limit in force. */
  limit_w: number;
  /** baseline_clock_mhz, candidate_clock_mhz: mean SM clock. */
  baseline_clock_mhz: number | null;
  candidate_clock_mhz: number | null;
  /** What slowed the GPU down meanwhile. */
  throttle: string[];
}

/** The build of one torch extension of a candidate. */
export interface ExtensionRecord {
  /** As the candidate calls it. */
  name: string;
  /** `fast` with the thin header and NVRTC, or `full` with torch's own headers and nvcc. */
  path: string;
  /** Why it could not be the fast one; empty on that. */
  reason: string;
  /** seconds_host, seconds_device: wall time spent on each part; on the full path the first is their sum. */
  seconds_host: number;
  seconds_device: number;
  /** cached_host, cached_device: whether that part was found built. */
  cached_host: boolean;
  cached_device: boolean;
  /** What its device code was compiled for, `sm_90a` where it asks for all of an H100; empty without any. */
  arch: string;
}

/** One judged candidate of the search. */
export interface SearchTurn {
  number: number;
  /** Digest of its text. */
  candidate: string;
  /** prompt, answer: what a model was asked and said, where one was. */
  prompt: string | null;
  answer: string | null;
  /** label, outcome, speedup: null where it was not judged in full. */
  label: string | null;
  outcome: string | null;
  speedup: number | null;
}

/** The state of the server. */
export interface ServerStatus {
  version: string;
  gpu: GpuName | null;
  /** The language model that is served; null where none is. */
  model: string | null;
  /** Those in force. */
  proposers: string[];
}

/** The GPU used for timing. */
export interface GpuName {
  name: string;
  arch: string;
}

/** The files with kernels in the workspace; `complete` is false if the list was cut off. */
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
  /** Why its workload cannot be used. */
  problem: string | null;
  /** The time of the text as it is, from its last measurement. */
  measured: string | null;
  /** The latest verdict on a version of the file. */
  last: LastVerdict | null;
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
}

/** A text. */
export interface OneText {
  textDocument: TextDocument;
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
}

/** The instruction counts of a verdict's kernels, compiled again for `arch`, the architecture it was timed on. */
export interface Opcodes {
  arch: string | null;
  kernels: KernelOpcodes[];
}

/** The number of instructions of each kind of a kernel on both sides; empty for a side without the kernel. */
export interface KernelOpcodes {
  name: string;
  baseline: Record<string, number>;
  candidate: Record<string, number>;
}
