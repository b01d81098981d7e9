"""Trials of shfl, vote, match, redux and elect with random active lanes and member masks."""

from collections.abc import Iterator

import numpy as np

from kernel_lsp.emulate import warp
from tests.bench.ptx_trials.trial import Array, Trial, loads, module, stores, words

THREADS = 128


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every form of the instructions that sm_`arch` has, each executed by both sides of `warps` warps."""
    n = 32 * warps
    for mode in ("up", "down", "bfly", "idx"):
        width = 1 << rng.integers(0, 6, n)
        clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
        clamp = np.where(rng.random(n) < 0.2, _any(rng, n), clamp)
        lane = np.where(rng.random(n) < 0.1, _any(rng, n), rng.integers(0, 8, n))
        operands = [_any(rng, n), lane.astype(np.uint32), clamp.astype(np.uint32)]
        yield _trial(rng, arch, f"shfl.sync.{mode}.b32", ["%r0", "%q1"], ["%r1", "%r2", "%r3"], operands, n)
    for mode in ("all", "any", "uni"):
        chance = np.repeat(rng.choice([0.0, 0.03, 0.5, 0.97, 1.0], warps), 32)
        yield _trial(rng, arch, f"vote.sync.{mode}.pred", ["%q1"], ["%q2"], [rng.random(n) < chance], n)
    yield _trial(rng, arch, "vote.sync.ballot.b32", ["%r0"], ["%q2"], [rng.random(n) < 0.5], n)
    for mode, results in (("any", ["%r0"]), ("all", ["%r0", "%q1"])):
        for kind, operand, dtype, shift in (("b32", "%r1", np.uint32, 0), ("b64", "%x1", np.uint64, 29)):
            base = np.repeat(rng.integers(0, 2**29, warps), 32)
            spread = np.repeat(rng.choice([1, 2, 5], warps), 32)
            values = (base + rng.integers(0, spread)).astype(dtype) << dtype(shift)
            yield _trial(rng, arch, f"match.{mode}.sync.{kind}", results, [operand], [values], n)
    for form in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"):
        yield _trial(rng, arch, f"redux.sync.{form}", ["%r0"], ["%r1"], [_any(rng, n)], n)
    if arch >= 90:
        yield _trial(rng, arch, "elect.sync", ["%r0", "%q1"], [], [], n)


def _any(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(0, 2**32, n, dtype=np.uint32)


def _sides(rng: np.random.Generator, warps: int) -> tuple[Array, Array]:
    """Each lane's side, 0 (takes no part), 1 or 2, and the mask of its side's lanes in its warp."""
    side = rng.integers(0, 3, (warps, 32))
    side[rng.random(warps) < 0.3] = 1
    bits = 1 << np.arange(32, dtype=np.int64)
    masks = np.stack([((side == number) * bits).sum(axis=1) for number in range(3)], axis=1)
    return side.reshape(-1), np.take_along_axis(masks, side, axis=1).reshape(-1).astype(np.uint32)


def _trial(
    rng: np.random.Generator,
    arch: int,
    opcode: str,
    results: list[str],
    registers: list[str],
    operands: list[Array],
    n: int,
) -> Trial:
    """One opcode by both sides of each warp in turn, each side in a branch of its own."""
    operation = warp.bind(opcode)
    assert operation is not None
    side, mask = _sides(rng, n // 32)
    body = loads([*registers, "%r9", "%r8"], n)
    body.append("mov.b32 %r0, 0; setp.ne.u32 %q1, %r0, 0;")
    form = ", ".join(["|".join(results), *registers, "%r9"])
    for number in (1, 2):
        body.append(f"setp.ne.u32 %q7, %r8, {number}; @%q7 bra PAST{number};\n{opcode} {form};\nPAST{number}:")
    body += stores(results, n)
    expected, defined, instances = [np.zeros(n, np.uint64) for _ in results], np.zeros(n, np.bool_), 0
    for number in (1, 2):
        active = side == number
        for want, answer in zip(expected, operation.run(active, *operands, mask), strict=True):
            want[active] = answer[active]
        defined |= active & (warp.faults(operation, active, active, *operands, mask).source < 0)
        instances += int(active.reshape(-1, 32).any(axis=1).sum())
    return Trial(
        opcode,
        module(arch, body),
        n // THREADS,
        THREADS,
        words([*operands, mask, side]),
        np.zeros(n * len(results), np.uint64),
        np.concatenate(expected),
        np.tile(defined, len(results)),
        instances,
    )
