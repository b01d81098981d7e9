"""KernelBench's own harness beside ours: `python -m tests.bench.kernelbench_beside --root DIR [--set]`.

DIR is KernelBench's repository, which is fetched for measuring only. Of problems 19 and 36 of level 1, one candidate
each with one kernel given to `load_inline` is judged by both, cold (nothing built yet) and warm (built before), with
five correctness trials and a hundred timed ones. Ours is measured from the candidate's text to its verdict in a session
that is open, with its workers set up: opening it, which measures the problem's model once for all candidates, is told
apart, and so is what comes after a gain was decided: it is measured again and looked at, as theirs is not. A third time
it is judged on plain inputs only, about as often as theirs. Beside it stands our own run of KernelBench's published
method (`--compat`).

With --set the whole set of candidates (`tests/kernelbench`) is judged by both too. KernelBench's extensions are built
before that, --jobs at a time, as its own evaluation does; only whether it takes a candidate for right counts, so its
verdicts are made on all GPUs that are visible, --at-once on each.

Options: --set, --jobs PROCESSES that build (default 8), --at-once PROCESSES (default 4), --limit SECONDS for one of
KernelBench's verdicts (default 300), --seconds after which no further one is begun, --rows FILE to write them to line
by line and to go on from, --dry-run to do all but what needs a GPU, --record.
"""

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

from kernel_lsp.bench.plan import Asked, Job, make_plan
from kernel_lsp.bench.published import REPEATS, TRIALS, ask_published
from kernel_lsp.bench.records import Ledger, Result
from kernel_lsp.bench.run import run_bench
from kernel_lsp.bench.suite import Problem, Sample, find_problems, find_samples
from kernel_lsp.bench.totals import add_up
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.building import Builders, arch_of
from kernel_lsp.judge.pipeline import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.store.store import open_store
from tests.bench.record import record

SET = Path(__file__).parents[1] / "kernelbench"
ONE_KERNEL = ((1, 19), (1, 36))
_DECIDING = ("parse", "build", "load", "correct", "legitimate", "record", "time")
_UNUSED = ("litellm", "openai", "dotenv", "tqdm", "datasets", "requests", "tomli")

THEIRS = f"""
import contextlib, importlib, json, sys, time
from unittest.mock import MagicMock

for name in {_UNUSED!r}:  # of a language model's clients; judging needs none of them
    try:
        importlib.import_module(name)
    except ImportError:
        sys.modules[name] = MagicMock()
asked = json.load(sys.stdin)
sys.path.insert(0, asked["source"])
with contextlib.redirect_stdout(sys.stderr):
    begun = time.perf_counter()
    import torch
    from kernelbench import eval as harness
    imported = time.perf_counter() - begun
    said = {{"imported_s": imported, "seconds": []}}
    if asked["do"] == "build":
        harness.load_custom_model(asked["candidate"], {{}}, asked["folder"])
    if asked["do"] == "dry":
        context = {{}}
        model, init, inputs = harness.load_original_model_and_inputs(asked["problem"], context)
        tolerance = harness.get_tolerance_for_precision("fp32")
        said |= {{"model": model.__name__, "arguments": len(init()), "tolerance": tolerance}}
    for _ in range(asked["times"] if asked["do"] == "judge" else 0):
        begun = time.perf_counter()
        found = harness.eval_kernel_against_ref(
            asked["problem"], asked["candidate"], measure_performance=True, num_correct_trials=asked["trials"],
            num_perf_trials=asked["repeats"], build_dir=asked["folder"], device=torch.device("cuda:0"),
            backend=asked["backend"],
        )
        said["seconds"].append(time.perf_counter() - begun)
    if asked["do"] == "judge":
        said |= {{"compiled": found.compiled, "correct": found.correctness, "mean_ms": found.runtime,
                 "reference_ms": found.ref_runtime, "metadata": {{k: str(v)[:300] for k, v in found.metadata.items()}}}}
print(json.dumps(said))
"""


def theirs(
    root: Path, do: str, problem: Path, candidate: Path, folder: Path, limit: float, gpu: Gpu | None, times: int = 1
) -> dict[str, Any]:
    """What KernelBench's harness says, in a process of its own; `trouble` where it says nothing.

    Args:
        root: KernelBench's repository.
        do: `build`, `judge`, or `dry` for all but either.
        problem: the problem's file.
        candidate: the candidate's.
        folder: where it builds; a second time it finds there what it has built.
        limit: seconds.
        gpu: on which.
        times: how many times it judges; the first is cold where the folder is new.
    """
    text = candidate.read_text()
    asked = {
        "do": do,
        "source": str(root / "src"),
        "problem": problem.read_text(),
        "candidate": text,
        "folder": str(folder),
        "backend": "triton" if "@triton.jit" in text else "cuda",
        "times": times,
        "trials": TRIALS,
        "repeats": REPEATS,
    }
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", THEIRS],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
            env=os.environ
            | {"TORCH_EXTENSIONS_DIR": str(folder)}
            | ({"CUDA_VISIBLE_DEVICES": gpu.uuid} if gpu else {}),
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        said = {"trouble": f"no answer in {limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        said = {"trouble": (error.stderr.strip().splitlines() or ["it ended"])[-1][:300]}
    return said | {"process_s": time.perf_counter() - begun}


async def ours(problem: Problem, sample: Sample, gpu: Gpu | None, folder: Path) -> dict[str, Any]:
    """Our own verdicts on one candidate: cold, then twice in a new session with what was built before."""
    paths = {"paths.cache": folder / "cache", "paths.data": folder / "data"}
    settings, plain = (load_settings(overrides=paths | more)[0] for more in ({}, {"judge.families": ["normal"]}))
    text = sample.path.read_text()
    target = make_target(problem.path)
    rows: dict[str, Any] = {}
    async with Pool(gpu.uuid if gpu else None) as pool:
        for state, chosen in (("cold", settings), ("warm", settings), ("warm, plain inputs", plain)):
            builders = Builders(pool, settings, arch_of(gpu, settings))
            begun = time.perf_counter()
            async with open_session(target, chosen, pool, builders) as session:
                opened = time.perf_counter() - begun
                if session.measured is not None:
                    await session.measured.bench.settle()  # an author's next edit finds workers that are set up
                candidate = Candidate(Language.TORCH, SourceFile(sample.path, text), None, state, "user")
                begun = time.perf_counter()
                verdict = await session.judge(candidate)
                judged = time.perf_counter() - begun
                built = await builders.build(target.workload, candidate)
            rows[state] = {
                "opening_s": opened,
                "verdict_s": judged,
                "decided_s": sum(verdict.seconds.get(stage, 0.0) for stage in _DECIDING),
                "stages_s": verdict.seconds,
                "built": verdict.evidence.build_way,
            } | _told(verdict)
            builders.close()
        said, trouble = await ask_published(pool, gpu, target, candidate, built, settings)
    rows[state] |= {"compat_s": said.seconds if said else None, "compat_correct": said.correct if said else trouble}
    return rows


def _told(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.verdict.value, "speedup": verdict.speedup, "reason": verdict.reason}


def _places(gpus: Sequence[Gpu]) -> list[Gpu | None]:
    """Where one process at a time may judge: on each GPU, or on the CPU alone."""
    return [*gpus] or [None]


async def beside_one_another(root: Path, gpus: Sequence[Gpu], limit: float) -> list[dict[str, Any]]:
    """Both on the one-kernel candidates, cold and warm: ours one after the other, theirs on a GPU each."""
    rows: list[dict[str, Any]] = []
    places = _places(gpus)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(places)) as pool:
        asked: list[Callable[[], dict[str, Any]]] = []
        for turn, (level, number) in enumerate(ONE_KERNEL):
            (problem,) = find_problems(root, level, {number})
            sample = next(s for s in find_samples(SET / "candidates") if (s.level, s.number) == (level, number))
            found = await ours(problem, sample, places[0], Path(folder, str(turn)))
            rows.append({"level": level, "problem": problem.name, "ours": found})
            for state, row in found.items():
                print(
                    f"{problem.name}, ours {state}: {row['decided_s']:.2f} s to a decision, "
                    f"{row['verdict_s']:.2f} s in all, {row['verdict']} ({row['reason']}), built {row['built']}",
                    flush=True,
                )
            at, own = Path(folder, "theirs", str(turn)), places[turn % len(places)]
            do = "judge" if own else "dry"
            asked.append(partial(theirs, root, do, problem.path, sample.path, at, limit, own, times=2))
        for row, said in zip(rows, pool.map(lambda ask: ask(), asked), strict=True):
            row["theirs"] = said
            print(f"{row['problem']}, theirs: {said.get('seconds') or said.get('trouble') or said}", flush=True)
    return rows


async def whole_set(root: Path, gpus: Sequence[Gpu], asked: argparse.Namespace) -> dict[str, Any]:
    """Both on the whole set: agreement, and what each takes."""
    settings, rows, first = load_settings(root)[0], asked.rows, list(gpus[:1])
    plan = make_plan(find_problems(root), find_samples(SET / "candidates"), settings, first)
    entries = {entry["file"]: entry for entry in json.loads((SET / "candidates.json").read_text())}
    folder = rows.with_suffix("")
    store = open_store(folder / "data")
    try:
        progress = await run_bench(plan, Asked(published=True), settings, Ledger(folder / "ledger.jsonl"), store, first)
    finally:
        store.close()
    known = _read(rows)
    left = [job for job in plan.jobs if job.sample.path.name not in known]
    until = time.monotonic() + asked.seconds

    def ask(job: Job, do: str, gpu: Gpu | None) -> None:
        at = folder / "theirs" / job.sample.path.stem
        if (seconds := min(asked.limit, until - time.monotonic())) < 1:
            return
        said = theirs(root, do, job.problem.path, job.sample.path, at, seconds, gpu)
        if do != "build":
            known[job.sample.path.name] = said
            with rows.open("a") as file:
                file.write(json.dumps({"file": job.sample.path.name} | said) + "\n")

    if gpus:
        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(lambda job: ask(job, "build", gpus[0]), left))
    free: Queue[Gpu | None] = Queue()
    for gpu in _places(gpus) * asked.at_once:
        free.put(gpu)

    def ask_on_a_free_one(job: Job) -> None:
        gpu = free.get()
        try:
            ask(job, "judge" if gpu else "dry", gpu)
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(free.qsize()) as pool:
        list(pool.map(ask_on_a_free_one, left))
    return _compared(progress.in_order, entries, known) | {
        "judged_by_kernelbench": len(known),
        "totals": add_up(progress.in_order, progress.judged, progress.seconds).model_dump(mode="json"),
        "troubles": progress.troubles,
    }


def _read(rows: Path) -> dict[str, dict[str, Any]]:
    lines = rows.read_text().splitlines() if rows.exists() else []
    return {row["file"]: row for row in map(json.loads, lines)}


def _compared(
    results: list[Result], entries: Mapping[str, dict[str, Any]], known: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Verdicts by kind of candidate, ours beside theirs and beside our run of their method."""
    counts: Counter[str] = Counter()
    disagreements: list[dict[str, Any]] = []
    for result in results:
        name = f"level_{result.level}_problem_{result.number}_sample_{result.index}_kernel.py"
        kind, said = entries[name]["kind"], known.get(name, {})
        counts[f"{kind}: {'right' if result.eager.right else 'rejected'} by us"] += 1
        if "correct" in said:
            counts[f"{kind}: {'right' if said['correct'] else 'rejected'} by KernelBench"] += 1
            compat = result.published.correct if result.published else None
            if compat != said["correct"]:
                disagreements.append({"file": name, "compat": compat, "theirs": said["correct"]})
        if result.eager.verdict.value not in entries[name]["expect"]:
            counts[f"{kind}: unexpected {result.eager.verdict.value}"] += 1
    return {"verdicts": dict(sorted(counts.items())), "compat_differs": disagreements}


async def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--set", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--rows", type=Path, default=Path("kernelbench_beside.jsonl"))
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpus = find_gpus()
    if not gpus and not asked.dry_run:
        raise SystemExit("KernelBench's harness needs a GPU; --dry-run does all but that.")
    figures: dict[str, Any] = {"one_kernel": await beside_one_another(asked.root, gpus, asked.limit)}
    if asked.record:
        record("kernelbench_beside", figures)  # the set takes long
    if asked.set:
        figures |= await whole_set(asked.root, gpus, asked)
        print(json.dumps(figures["verdicts"], indent=2))
        if asked.record:
            record("kernelbench_beside", figures)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KernelLspError as error:
        raise SystemExit(str(error)) from None
