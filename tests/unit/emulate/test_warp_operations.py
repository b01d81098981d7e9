"""Warp instructions held to loops over lanes written from the PTX ISA's text."""

from collections.abc import Callable

import numpy as np
import pytest

from kernel_lsp.emulate import warp

N = 96
FULL = np.uint32(0xFFFFFFFF)
ALL = np.ones(N, np.bool_)


def operation(opcode: str) -> warp.WarpOperation:
    found = warp.bind(opcode)
    assert found is not None
    return found


def groups(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lanes that execute together, and member masks: the warps are split in two at random, each half naming itself."""
    rng = np.random.default_rng(seed)
    half = rng.integers(0, 2**32, N // 32, dtype=np.uint32)
    mask = np.zeros(N, np.uint32)
    active = rng.random(N) < 0.8
    for lane in range(N):
        own = int(half[lane // 32])
        named = own if own >> lane % 32 & 1 else ~own & 0xFFFFFFFF
        here = sum(int(active[lane // 32 * 32 + i]) << i for i in range(32))
        mask[lane] = named & here
    return active, mask


def members(active: np.ndarray, mask: np.ndarray, lane: int) -> list[int]:
    first = lane // 32 * 32
    return [first + i for i in range(32) if int(mask[lane]) >> i & 1 and active[first + i]]


def shuffle_source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The pseudo code of shfl.sync in the ISA."""
    bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
    max_lane = (lane & segmask) | (cval & ~segmask & 31)
    min_lane = lane & segmask
    match mode:
        case "up":
            j = lane - bval
            within = j >= max_lane
        case "down":
            j = lane + bval
            within = j <= max_lane
        case "bfly":
            j = lane ^ bval
            within = j <= max_lane
        case _:
            j = min_lane | (bval & ~segmask & 31)
            within = j <= max_lane
    return (j if within else lane), within


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 4, 2, 1])
def test_shuffles_follow_the_pseudo_code(mode: str, width: int) -> None:
    rng = np.random.default_rng(width)
    a, b = rng.integers(0, 2**32, N, dtype=np.uint32), rng.integers(0, 64, N, dtype=np.uint32)
    c = np.uint32((32 - width) << 8 | (0 if mode == "up" else 31))
    d, p = operation(f"shfl.sync.{mode}.b32").run(ALL, a, b, c, FULL)
    for lane in range(N):
        source, within = shuffle_source(mode, lane % 32, int(b[lane]), int(c))
        assert (d[lane], p[lane]) == (a[lane // 32 * 32 + source], within)


def test_a_shuffle_takes_odd_clamps_from_registers() -> None:
    rng = np.random.default_rng(9)
    a, b, c = (rng.integers(0, 2**32, N, dtype=np.uint32) for _ in range(3))
    for mode in ("up", "down", "bfly", "idx"):
        d, p = operation(f"shfl.sync.{mode}.b32").run(ALL, a, b, c, FULL)
        for lane in range(N):
            source, within = shuffle_source(mode, lane % 32, int(b[lane]), int(c[lane]))
            assert (d[lane], p[lane]) == (a[lane // 32 * 32 + source], within)


@pytest.mark.parametrize("seed", range(4))
def test_votes_count_the_members_that_take_part(seed: int) -> None:
    active, mask = groups(seed)
    a = np.random.default_rng(seed).random(N) < [0.5, 1.0, 0.0, 0.97][seed]
    results = {mode: operation(f"vote.sync.{mode}.pred").run(active, a, mask)[0] for mode in ("all", "any", "uni")}
    ballot = operation("vote.sync.ballot.b32").run(active, a, mask)[0]
    for lane in np.flatnonzero(active):
        votes = [bool(a[other]) for other in members(active, mask, lane)]
        assert results["all"][lane] == all(votes)
        assert results["any"][lane] == any(votes)
        assert results["uni"][lane] == (all(votes) or not any(votes))
        assert ballot[lane] == sum(1 << other % 32 for other in members(active, mask, lane) if a[other])


@pytest.mark.parametrize("kind", ["b32", "b64"])
@pytest.mark.parametrize("values", [1, 2, 5])
def test_matches_find_equal_values(kind: str, values: int) -> None:
    active, mask = groups(values)
    a = np.random.default_rng(values).integers(0, values, N).astype(np.uint32 if kind == "b32" else np.uint64)
    a = a << (a.dtype.itemsize * 8 - 4)  # the difference is in the upper half of 64 bits
    found = operation(f"match.any.sync.{kind}").run(active, a, mask)[0]
    every, p = operation(f"match.all.sync.{kind}").run(active, a, mask)
    for lane in np.flatnonzero(active):
        group = members(active, mask, lane)
        assert found[lane] == sum(1 << other % 32 for other in group if a[other] == a[lane])
        same = len({int(a[other]) for other in group}) == 1
        assert (every[lane], p[lane]) == (sum(1 << other % 32 for other in group) if same else 0, same)


FOLDS: dict[str, Callable[[list[int]], int]] = {
    "add": sum,
    "min": min,
    "max": max,
    "and": lambda values: int(np.bitwise_and.reduce(values)),
    "or": lambda values: int(np.bitwise_or.reduce(values)),
    "xor": lambda values: int(np.bitwise_xor.reduce(values)),
}


@pytest.mark.parametrize(
    "opcode",
    [*(f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("u32", "s32")), "and.b32", "or.b32", "xor.b32"],
)
def test_reductions_fold_the_members(opcode: str) -> None:
    name, kind = opcode.split(".")
    active, mask = groups(11)
    a = np.random.default_rng(12).integers(0, 2**32, N, dtype=np.uint32)
    d = operation(f"redux.sync.{opcode}").run(active, a, mask)[0]
    seen = a.view(np.int32) if kind == "s32" else a
    for lane in np.flatnonzero(active):
        folded = FOLDS[name]([int(seen[other]) for other in members(active, mask, lane)])
        assert d[lane] == folded & 0xFFFFFFFF


def test_float_reductions_order_zeros_and_leave_out_nans() -> None:
    minimum, maximum = operation("redux.sync.min.f32"), operation("redux.sync.max.f32")
    a = np.zeros(N, np.float32)
    a[:3] = 1.5, -0.0, np.nan
    a[32:64] = np.nan
    a[64:66] = -np.inf, np.inf
    (low,), (high,) = minimum.run(ALL, a.view(np.uint32), FULL), maximum.run(ALL, a.view(np.uint32), FULL)
    assert [low[0], high[0]] == [0x80000000, 0x3FC00000]
    assert [low[32], high[32]] == [0x7FFFFFFF, 0x7FFFFFFF]
    assert [low[64], high[64]] == [0xFF800000, 0x7F800000]
    (with_nan,) = operation("redux.sync.max.NaN.f32").run(ALL, a.view(np.uint32), FULL)
    assert [with_nan[0], with_nan[64]] == [0x7FFFFFFF, 0x7F800000]
    (absolute,) = operation("redux.sync.max.abs.f32").run(ALL, (-a).view(np.uint32), FULL)
    assert absolute[0] == 0x3FC00000


def test_activemask_and_elect() -> None:
    active, mask = groups(13)
    (here,) = operation("activemask.b32").run(active)
    leader, is_leader = operation("elect.sync").run(active, mask)
    for lane in np.flatnonzero(active):
        assert here[lane] == sum(int(active[lane // 32 * 32 + i]) << i for i in range(32))
        first = members(active, mask, lane)[0]
        assert (leader[lane], is_leader[lane]) == (first % 32, first == lane)


def test_a_right_shuffle_has_no_fault() -> None:
    down = operation("shfl.sync.down.b32")
    operands = (np.zeros(N, np.uint32), np.uint32(16), np.uint32(31), FULL)
    assert not warp.faults(down, ALL, ALL, *operands).any()


def test_lanes_named_but_elsewhere_are_a_fault_unless_they_have_exited() -> None:
    vote = operation("vote.sync.ballot.b32")
    active = np.arange(N) % 32 < 16
    found = warp.faults(vote, active, ALL, ALL, FULL)
    np.testing.assert_array_equal(found.absent, np.where(active, 0xFFFF0000, 0))
    assert not warp.faults(vote, active, active, ALL, FULL).any()


def test_reading_a_lane_that_takes_no_part_is_a_fault() -> None:
    down = operation("shfl.sync.down.b32")
    active = np.arange(N) % 32 < 20
    operands = (np.zeros(N, np.uint32), np.uint32(16), np.uint32(31), FULL)
    found = warp.faults(down, active, active, *operands)
    for lane in range(N):
        inside = lane % 32
        reads = inside + 16 if inside < 16 else inside
        assert found.source[lane] == (reads if active[lane] and reads >= 20 else -1)


def test_a_lane_outside_the_mask_it_names_is_a_fault() -> None:
    vote = operation("vote.sync.any.pred")
    found = warp.faults(vote, ALL, ALL, ALL, np.uint32(0x7FFFFFFF))
    np.testing.assert_array_equal(np.flatnonzero(found.outside), [31, 63, 95])


@pytest.mark.parametrize(
    "opcode", ["shfl.up.b32", "vote.ballot.b32", "shfl.sync.idx.b64", "redux.sync.add.f32", "add.u32"]
)
def test_what_is_no_warp_instruction_has_no_meaning(opcode: str) -> None:
    assert warp.bind(opcode) is None
