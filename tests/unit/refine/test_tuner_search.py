"""The tuner against made-up machines whose best setting is known."""

import asyncio
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.proposer import Facts, Feedback
from kernel_lsp.refine.proposers.tuner import Tuner
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

MATMUL = """
import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        acc += tl.dot(tl.load(a), tl.load(b))
    tl.store(c, acc)


def matmul(a, b):
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    c = torch.empty(m, n, device=a.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 32))
    matmul_kernel[grid](a, b, c, m, n, k, BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, num_warps=4, num_stages=2)
    return c
"""
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
Judge = Callable[[Candidate], Feedback]


def base() -> Candidate:
    return Candidate(Language.TRITON, SourceFile(Path("matmul.py"), MATMUL), None, "baseline", "baseline")


def settings(candidate: Candidate) -> dict[str, int]:
    return {name: int(re.findall(rf"{name}=(\d+)", candidate.kernel.text)[-1]) for name in NAMES}


def timed(ratio: float, facts: Facts | None = None) -> Feedback:
    verdict = Outcome.FASTER if ratio < 0.99 else Outcome.SLOWER if ratio > 1.01 else Outcome.SAME
    return Feedback(Stage.TIMED, verdict, ratio, (ratio * 0.99, ratio * 1.01), "", facts)


def failed(verdict: Outcome) -> Feedback:
    return Feedback(Stage.RUN, verdict, message="out of resources")


def machine(seed: int) -> tuple[Judge, Callable[[dict[str, int]], float]]:
    """A landscape with one best setting, sizes that only pay with warps to match, noise, and tiles that do not fit."""
    draw = random.Random(seed)
    best = {"BLOCK_M": draw.randint(5, 8), "BLOCK_N": draw.randint(5, 8), "BLOCK_K": draw.randint(4, 6)}
    best |= {"num_warps": draw.randint(1, 4), "num_stages": draw.randint(2, 5)}
    weight = {name: draw.uniform(0.03, 0.15) for name in NAMES}

    def cost(values: dict[str, int]) -> float:
        at = {name: float(values[name]) if name == "num_stages" else math.log2(values[name]) for name in NAMES}
        off = {name: at[name] - best[name] for name in NAMES}
        together = off["BLOCK_M"] + off["BLOCK_N"] - off["num_warps"]
        return sum(weight[name] * abs(off[name]) for name in NAMES) + 0.05 * together**2

    def judge(candidate: Candidate) -> Feedback:
        values = settings(candidate)
        tile = (values["BLOCK_M"] + values["BLOCK_N"]) * values["BLOCK_K"] * 2 * values["num_stages"]
        if tile > 232448:
            return failed(Outcome.RUN_FAILED)
        return timed(math.exp(cost(values) - cost(settings(base())) + draw.gauss(0, 0.004)))

    return judge, cost


def tune(judge: Judge, budget: int, seed: int = 0, batch: int = 4) -> tuple[list[Candidate], list[Feedback]]:
    """Run the tuner for `budget` candidates, `batch` of them under judgement at a time."""
    tuner = Tuner(find_tunables(base(), "matmul_kernel", device_named("H100")), seed=seed)
    seen: list[Candidate] = []
    told: list[Feedback] = []
    while len(seen) < budget and (found := asyncio.run(tuner.next(min(batch, budget - len(seen))))):
        seen += found
        for candidate in found:
            told.append(judge(candidate))
            tuner.tell(candidate, told[-1])
    return seen, told


def test_comes_close_to_the_best_setting_within_sixty_candidates() -> None:
    shares: list[float] = []
    for seed in range(20):
        judge, cost = machine(seed)
        seen, told = tune(judge, 60, seed=seed)
        reached = min((cost(settings(c)) for c, f in zip(seen, told, strict=True) if f.ratio is not None), default=9.9)
        start = cost(settings(base()))
        shares.append((start - min(reached, start)) / start)
    assert sum(share > 0.9 for share in shares) >= 16, shares
    assert min(shares) > 0.6, shares


def test_most_of_the_gain_comes_within_twenty_five_candidates() -> None:
    shares: list[float] = []
    for seed in range(20):
        judge, cost = machine(seed)
        seen, told = tune(judge, 25, seed=seed)
        start = cost(settings(base()))
        reached = min(
            (cost(settings(c)) for c, f in zip(seen, told, strict=True) if f.ratio is not None), default=start
        )
        shares.append((start - min(reached, start)) / start)
    assert sorted(shares)[len(shares) // 2] > 0.7, shares


@pytest.mark.parametrize("batch", [1, 7])
def test_never_proposes_a_text_twice(batch: int) -> None:
    seen, _ = tune(machine(3)[0], 80, batch=batch)
    digests = [candidate.digest for candidate in seen]
    assert len(set(digests)) == len(digests)
    assert base().digest not in digests


def test_is_deterministic_for_a_seed() -> None:
    first, _ = tune(lambda _: timed(1.0), 40, seed=5)
    again, _ = tune(lambda _: timed(1.0), 40, seed=5)
    assert [candidate.digest for candidate in first] == [candidate.digest for candidate in again]


def test_gives_up_when_everything_is_wrong() -> None:
    seen, _ = tune(lambda _: failed(Outcome.WRONG), 1000, batch=1)
    # Two wrong values condemn a number: five numbers, two values each.
    assert 5 <= len(seen) <= 12
    assert all(candidate.label.count("->") == 1 for candidate in seen)


def test_gives_up_when_nothing_helps() -> None:
    seen, _ = tune(lambda _: timed(1.0), 1000, batch=1)
    assert len(seen) == 12


def test_settings_far_away_are_tried_when_every_step_by_itself_is_slower() -> None:
    def judge(candidate: Candidate) -> Feedback:
        changed = sum(settings(candidate)[name] != settings(base())[name] for name in NAMES)
        return timed(0.7 if changed > 2 else 1.2)

    for seed in range(5):
        tuner = Tuner(find_tunables(base(), "matmul_kernel", device_named("H100")), seed=seed, patience=30)
        ratios: list[float] = []
        while found := asyncio.run(tuner.next(4)):
            for candidate in found:
                tuner.tell(candidate, judge(candidate))
                ratios.append(judge(candidate).ratio or 9.9)
        assert min(ratios) == 0.7
        assert len(ratios) < 100, "it ends by itself"


def test_a_failed_value_ends_its_direction() -> None:
    def judge(candidate: Candidate) -> Feedback:
        return failed(Outcome.BUILD_FAILED) if settings(candidate)["BLOCK_M"] > 64 else timed(1.1)

    seen, _ = tune(judge, 1000, batch=1)
    larger = [candidate for candidate in seen if settings(candidate)["BLOCK_M"] > 64]
    assert len(larger) == 1


def test_a_wrong_value_is_not_combined() -> None:
    def judge(candidate: Candidate) -> Feedback:
        values = settings(candidate)
        if values["BLOCK_K"] == 32:
            return failed(Outcome.WRONG)
        return timed(1.0 - 0.1 * (values["num_warps"] == 8) - 0.1 * (values["BLOCK_N"] == 64))

    seen, _ = tune(judge, 60, batch=1)
    wrong = [candidate for candidate in seen if settings(candidate)["BLOCK_K"] == 32]
    assert len(wrong) == 1
    assert any(settings(c)["num_warps"] == 8 and settings(c)["BLOCK_N"] == 64 for c in seen)


def test_goes_no_further_once_registers_spill() -> None:
    def judge(candidate: Candidate) -> Feedback:
        spills = 64 if settings(candidate)["BLOCK_N"] > 32 else 0
        return timed(1.2, Facts(registers=255, spill_bytes=spills))

    tuner = Tuner(find_tunables(base(), "matmul_kernel", device_named("H100")))
    tuner.tell(base(), timed(1.0, Facts(registers=64, spill_bytes=0)))
    seen: list[Candidate] = []
    while found := asyncio.run(tuner.next(1)):
        seen += found
        tuner.tell(found[0], judge(found[0]))
    assert {settings(candidate)["BLOCK_N"] for candidate in seen if settings(candidate)["BLOCK_N"] > 32} == {64}


def test_proposes_nothing_for_a_kernel_without_numbers() -> None:
    source = SourceFile(Path("k.cu"), "__global__ void k() { __syncthreads(); }")
    plain = Candidate(Language.CUDA, source, None, "baseline", "baseline")
    assert asyncio.run(Tuner(find_tunables(plain, "k", device_named("H100"))).next(8)) == []
    assert asyncio.run(Tuner(find_tunables(plain, "absent", device_named("H100"))).next(8)) == []


def test_a_stranger_teaches_nothing() -> None:
    other = Candidate(Language.TRITON, SourceFile(Path("m.py"), "pass"), None, "rewrite", "model:x")
    tuner, same = (Tuner(find_tunables(base(), "matmul_kernel", device_named("H100"))) for _ in range(2))
    tuner.tell(other, timed(0.1))
    assert [c.digest for c in asyncio.run(tuner.next(9))] == [c.digest for c in asyncio.run(same.next(9))]
