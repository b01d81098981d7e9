"""Bugs of asynchronous pipelines are found at their lines, and their clean twins are right and say nothing."""

import numpy as np
import pytest
from emulator_kit import HOPPER, compiled, launch, line_of

RING = (
    HOPPER
    + r"""
constexpr int STAGES = 3, TILE = 64;
// A warp brings tiles in a ring of stages, another one uses them: y = 2 x.
extern "C" __global__ void ring(const float* x, float* y, int tiles) {
    __shared__ alignas(128) float stage[STAGES][TILE];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) { init(&full[s], 1); init(&empty[s], EMPTY_COUNT); }
    __syncthreads();
    x += blockIdx.x * tiles * TILE;
    y += blockIdx.x * tiles * TILE;
    if (threadIdx.x / 32 == 0) {
        if (threadIdx.x == 0)
            for (int k = 0; k < tiles; ++k) {
                int s = k % STAGES, round = k / STAGES;
                WAIT_EMPTY  // waits for the stage
                EXPECT  // announces
                load(stage[s], x + k * TILE, 4 * TILE, &full[s]);  // brings
            }
    } else {
        for (int k = 0; k < tiles; ++k) {
            int s = k % STAGES, round = k / STAGES;
            WAIT_FULL  // waits for the tile
            for (int i = threadIdx.x % 32; i < TILE; i += 32) y[k * TILE + i] = 2 * stage[s][i];  // reads
            ARRIVE  // frees the stage
        }
    }
}
"""
)
RIGHT = {
    "EMPTY_COUNT": "32",
    "WAIT_EMPTY": "wait(&empty[s], (round & 1) ^ 1);",
    "EXPECT": "expect(&full[s], 4 * TILE);",
    "WAIT_FULL": "wait(&full[s], round & 1);",
    "ARRIVE": "arrive(&empty[s]);",
}
# What is planted, and the findings: kind, and text of the line.
BUGS = {
    # The reader overtakes, so that its arrivals come a phase too early.
    "the tile is not waited for": (
        {"WAIT_FULL": ""},
        {("uninitialised", "// reads"), ("deadlock", "// waits for the stage")},
    ),
    "the wait for the tile has the other parity": (
        {"WAIT_FULL": "wait(&full[s], (round & 1) ^ 1);"},
        {("uninitialised", "// reads"), ("deadlock", "// waits for the stage"), ("deadlock", "// waits for the tile")},
    ),
    "another stage is waited for": (
        {"WAIT_FULL": "wait(&full[0], round & 1);", "ARRIVE": "arrive(&empty[s]);"},
        {("unawaited-copy", "// reads"), ("overwritten-stage", "// brings")},
    ),
    "the stage is not waited for": (
        {"WAIT_EMPTY": ""},
        {
            *(("overwritten-stage", "// brings"), ("deadlock", "// waits for the tile")),
            ("misused-mbarrier", "// waits for the tile"),
        },
    ),
    "the stage is freed before it is read": (
        {"WAIT_FULL": "wait(&full[s], round & 1); arrive(&empty[s]);", "ARRIVE": ""},
        {("overwritten-stage", "// brings")},
    ),
    "the wait for the stage has the other parity": (
        {"WAIT_EMPTY": "wait(&empty[s], round & 1);"},
        {("deadlock", "// waits for the stage"), ("deadlock", "// waits for the tile")},
    ),
    "the stage is never freed": (
        {"ARRIVE": ""},
        {("deadlock", "// waits for the stage"), ("deadlock", "// waits for the tile")},
    ),
    "only one thread of 32 frees the stage": (
        {"ARRIVE": "if (threadIdx.x == 32) arrive(&empty[s]);"},
        {("deadlock", "// waits for the stage"), ("deadlock", "// waits for the tile")},
    ),
    "too many bytes are announced": (
        {"EXPECT": "expect(&full[s], 8 * TILE);"},
        {("transaction-bytes", "// waits for the tile"), ("deadlock", "// waits for the stage")},
    ),
    "too few bytes are announced": (
        {"EXPECT": "expect(&full[s], 2 * TILE);"},
        {("transaction-bytes", "// waits for the tile"), ("deadlock", "// waits for the stage")},
    ),
    "no bytes are announced": (
        {"EXPECT": "arrive(&full[s]);"},
        {
            ("transaction-bytes", "// waits for the tile"),
            ("deadlock", "// waits for the stage"),
            ("unawaited-copy", "// reads"),
            ("overwritten-stage", "// brings"),
        },
    ),
    "nobody arrives for the tile": (
        {"EXPECT": ""},
        {("deadlock", "// waits for the tile"), ("deadlock", "// waits for the stage")},
    ),
}
OUT = (
    HOPPER
    + r"""
extern "C" {
__global__ void unfenced(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    tile[threadIdx.x] = 2 * x[threadIdx.x];
    FENCE
    __syncthreads();
    LATE_FENCE
    if (threadIdx.x == 0) {
        store(y, tile, 256);  // leaves
        commit();
        WAIT
    }
}
__global__ void overwrites(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    for (int k = 0; k < 2; ++k) {
        if (k == 1) {
            if (threadIdx.x == 0) { WAIT }
            __syncthreads();
        }
        tile[threadIdx.x] = 2 * x[64 * k + threadIdx.x];  // again
        FENCE
        __syncthreads();
        if (threadIdx.x == 0) { store(y + 64 * k, tile, 256); commit(); }
    }
    if (threadIdx.x == 0) wait_read<0>();
}
__global__ void unwritten(float* y) {
    __shared__ alignas(128) float tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = 1;
    fence();
    __syncthreads();
    if (threadIdx.x == 0) { store(y, tile, 256); commit(); wait_read<0>(); }  // half of it
}
__global__ void once(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 1);
    fence();
    __syncthreads();
    if (threadIdx.x == FIRST) { expect(&bar, 256); load(tile, x, 256, &bar); }
    AWAIT  // awaits
    y[threadIdx.x] = tile[threadIdx.x];  // uses
}
__global__ void refilled(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    __shared__ u64 bar;
    tile[threadIdx.x] = 0;
    if (threadIdx.x == 0) init(&bar, 1);
    FENCE
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 256);
        load(tile, x, 256, &bar);  // onto what was written
    }
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
}
"""
)
FENCED = {
    "LATE_FENCE": "",
    "FENCE": "fence();",
    "AWAIT": "wait(&bar, 0);",
    "WAIT": "wait_read<0>();",
    "FIRST": "0",
}


def with_words(source: str, words: dict[str, str]) -> str:
    for word in sorted(words, key=len, reverse=True):
        source = source.replace(word, words[word])
    return source


def run(source: str, entry: str, *arrays, grid: int = 1):
    return launch(compiled(source, "sm_90a"), entry, grid, 64, *arrays)


def outermost(done) -> set[tuple[str, int]]:
    """The findings' kinds and the lines in the kernels, not in helpers."""
    return {(f.kind.value, f.location.chain[-1].line) for f in done.findings if f.location}


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(3).standard_normal(2 * 8 * 64).astype(np.float32)


def test_a_right_ring_is_right_and_says_nothing(x):
    done = run(with_words(RING, RIGHT), "ring", x, np.zeros_like(x), 8, grid=2)
    np.testing.assert_array_equal(done.arrays[1], 2 * x)
    assert done.findings == ()


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_a_ring_is_found_at_its_line(name: str, x):
    words, expected = BUGS[name]
    source = with_words(RING, RIGHT | words)
    done = run(source, "ring", x, np.zeros_like(x), 8, grid=2)
    assert outermost(done) == {(kind, line_of(source, text)) for kind, text in expected}


def test_a_deadlock_says_who_waits_for_whom(x):
    source = with_words(RING, RIGHT | {"ARRIVE": "if (threadIdx.x == 32) arrive(&empty[s]);"})
    done = run(source, "ring", x, np.zeros_like(x), 8)
    waits = {f.location.chain[-1].line: f.message for f in done.findings}
    producer = waits[line_of(source, "// waits for the stage")]
    assert "phase 0 (parity 0)" in producer
    assert "31 of 32 arrivals are missing" in producer
    arrives, waits_at = line_of(source, "// frees the stage"), line_of(source, "// waits for the tile")
    assert f"thread 32, which arrives at line {arrives}, itself waits at line {waits_at}" in producer
    assert "1 of 1 arrivals are missing" in waits[line_of(source, "// waits for the tile")]


@pytest.mark.parametrize(
    ("entry", "fence"),
    [
        *((entry, FENCED) for entry in ("unfenced", "overwrites", "refilled", "once")),
        ("unfenced", FENCED | {"FENCE": "", "LATE_FENCE": "fence();"}),
    ],
)
def test_right_copies_out_say_nothing(entry: str, fence: dict[str, str], x):
    done = run(with_words(OUT, fence), entry, x[:128], np.zeros(128, np.float32))
    size = 128 if entry == "overwrites" else 64
    np.testing.assert_array_equal(done.arrays[1][:size], (1 if entry in ("refilled", "once") else 2) * x[:size])
    assert done.findings == ()


@pytest.mark.parametrize(
    ("entry", "words", "kind", "text"),
    [
        ("unfenced", {"FENCE": ""}, "missing-proxy-fence", "// leaves"),
        ("unfenced", {"FENCE": "__threadfence_block();"}, "missing-proxy-fence", "// leaves"),
        ("unfenced", {"WAIT": ""}, "unawaited-copy", "// leaves"),
        ("overwrites", {"WAIT": ""}, "overwritten-stage", "// again"),
        ("refilled", {"FENCE": ""}, "missing-proxy-fence", "// onto what was written"),
        ("once", {"AWAIT": ""}, "unawaited-copy", "// uses"),
        ("once", {"AWAIT": "wait(&bar, 1);"}, "deadlock", "// awaits"),
        ("once", {"AWAIT": "if (threadIdx.x == 0) wait(&bar, 0);"}, "unawaited-copy", "// uses"),
        ("once", {"AWAIT": "wait(&bar, threadIdx.x == 0);"}, "deadlock", "// awaits"),
    ],
)
def test_a_bug_of_copies_out_is_found_at_its_line(entry: str, words: dict[str, str], kind: str, text: str, x):
    source = with_words(OUT, FENCED | words)
    done = run(source, entry, x[:128], np.zeros(128, np.float32))
    assert outermost(done) == {(kind, line_of(source, text))}


def test_a_copy_of_memory_that_nobody_wrote_is_found():
    source = with_words(OUT, FENCED)
    done = run(source, "unwritten", np.zeros(64, np.float32))
    assert outermost(done) == {("uninitialised", line_of(source, "// half of it"))}


def test_stages_and_registers_of_a_ring_are_told(x):
    source = with_words(RING, RIGHT).replace(
        "if (threadIdx.x / 32 == 0) {",
        'if (threadIdx.x / 32 == 0) {\nasm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // gives up registers',
    )
    result = run(source, "ring", x, np.zeros_like(x), np.int32(8), grid=2).result
    (ring,) = result.rings
    assert ring.place is not None
    assert (ring.place.own.line, ring.stages, ring.stage_bytes) == (line_of(source, "// announces"), 3, 4 * 64)
    assert ring.fills == 2 * 8, "a stage is filled again, in each of the two blocks"
    (share,) = result.shares
    assert share.place is not None
    assert (share.place.own.line, share.registers, share.warps) == (line_of(source, "// gives up"), 40, 2)


def test_a_kernel_without_copies_has_no_stages(x):
    source = 'extern "C" __global__ void plain(float* y) { y[threadIdx.x] = 1; }'
    result = run(source, "plain", x).result
    assert (result.rings, result.shares) == ((), ())
