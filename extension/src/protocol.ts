/** What the server says beyond the protocol; `docs/lsp-protocol.md` describes each message. */

export type JobState = "waiting" | "running" | "done" | "failed" | "cancelled";

export interface Progress {
  elapsed: number;
  budget: number;
}

export interface Job {
  id: string;
  work: "refine" | "check" | "baseline" | "compare" | "rewrite" | "lower";
  uri: string;
  kernel: string | null;
  title: string;
  state: JobState;
  text: string;
  progress: Progress | null;
  verdict: string | null;
  reason: string;
  /** What was left out and why. */
  notes?: string[];
  unasked: boolean;
}

export interface ServerStatus {
  version: string;
  gpu: { name: string; arch: string } | null;
  /** The language model that is served; null where none is. */
  model: string | null;
  proposers: string[];
}

export interface Variant {
  verdict: string;
  label: string;
  title: string;
  speedup: number;
  interval: [number, number];
  kernels: string[];
}

export interface ListedVariant extends Variant {
  /** Whether it is for the text as it is now. */
  fits: boolean;
}

export interface VariantTexts extends Variant {
  /** Whether its one file is not there yet. */
  creates: boolean;
  files: { uri: string; text: string }[];
}

export interface Resources {
  name: string;
  registers: number;
  shared_bytes: number;
  spill_bytes: number | null;
  stack_bytes: number;
  threads: number | null;
  occupancy: number | null;
  limiter: string | null;
}

export interface KernelRow {
  name: string;
  line: number;
  facts: Resources | null;
  drift: string[];
  best: Variant | null;
  variants: number;
}

export interface FileRow {
  uri: string;
  language: string;
  trusted: boolean;
  workload: boolean;
  problem: string | null;
  measured: string | null;
  last: { verdict: string; outcome: string; label: string; speedup: number | null } | null;
  kernels: KernelRow[];
}

export interface Instruction {
  offset: number;
  guard: string;
  opcode: string;
  operands: string;
  line: number | null;
  live: number;
  role: string | null;
  looped: boolean;
}

export interface KernelCode {
  arch: string;
  name: string;
  instructions: Instruction[];
}

export interface CaseTiming {
  case: string;
  mode: string;
  launches: number;
  baseline_us: number;
  candidate_us: number;
  speedup: number;
  interval: [number, number];
  bytes_moved: number;
  baseline_roofline_share: number | null;
  roofline_share: number | null;
  blocks: number[];
  confirmation_blocks: number;
}

export interface Verdict {
  id: string;
  verdict: string;
  stage: string;
  reason: string;
  cases: CaseTiming[];
  speedup: number | null;
  interval: [number, number] | null;
  seconds: Record<string, number>;
  evidence: {
    created: string;
    candidate_label: string;
    candidate_origin: string;
    kernel_path: string;
    workload_path: string;
    seed: number | null;
    checks: { name: string; status: "passed" | "failed" | "skipped"; detail: string; case: string | null }[];
    errors: {
      case: string;
      family: string;
      baseline_max: number | string;
      baseline_rms: number | string;
      candidate_max: number | string;
      candidate_rms: number | string;
    }[];
    mismatch: { case: string; family: string; index: number[]; expected: string; actual: string } | null;
    baseline_resources: Resources[];
    candidate_resources: Resources[];
    device: {
      name: string;
      arch: string;
      driver: string;
      sm_clock_mhz: [number, number] | null;
      power_w: number | null;
      temperature_c: number | null;
      throttle: string[];
      others_busy_percent: number | null;
      copy_bandwidth_gbs: number | null;
      read_bandwidth_gbs?: number | null;
    } | null;
    versions: Record<string, string>;
    build_way: string;
    settings: Record<string, boolean | number | string>;
    discarded_blocks: number;
    protections: string[];
    command: string;
  };
}

export interface Turn {
  number: number;
  candidate: string;
  prompt: string | null;
  answer: string | null;
  label: string | null;
  outcome: string | null;
  speedup: number | null;
}

export interface Evidence {
  name: string;
  title: string;
  markdown: string;
  verdict: Verdict;
  turns: Turn[];
}

export interface Opcodes {
  arch: string | null;
  kernels: { name: string; baseline?: Record<string, number>; candidate?: Record<string, number> }[];
}
