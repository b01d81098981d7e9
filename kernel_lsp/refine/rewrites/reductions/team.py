"""Teams of threads: how the threads of a warp or a block are numbered, meet, and combine their values."""

from dataclasses import dataclass

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree

_WARP_HELPER = """\
// Combines the values of a warp's threads; each of them gets the result.
template <typename T, typename Combine>
__device__ T {name}(T value, Combine combine) {{
    for (int lanes = 16; lanes > 0; lanes /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lanes));
    return value;
}}
"""
_WARP_SCAN = """\
// Returns `total` and the values of a warp's threads up to this one, added up; adds all of them to `total`.
template <typename T>
__device__ T {name}(T& total, T value) {{
    for (int lanes = 1; lanes < 32; lanes *= 2) {{
        const T before = __shfl_up_sync(0xffffffff, value, lanes);
        if (threadIdx.x % 32 >= lanes) value += before;
    }}
    value += total;
    total = __shfl_sync(0xffffffff, value, 31);
    return value;
}}
"""
_BLOCK_SCAN = """\
// Returns `total` and the values of a block's threads up to this one, added up; adds all of them to `total`.
template <typename T>
__device__ T {name}(T& total, T value) {{
    __shared__ T of_warp[32];
    for (int lanes = 1; lanes < 32; lanes *= 2) {{
        const T before = __shfl_up_sync(0xffffffff, value, lanes);
        if (threadIdx.x % 32 >= lanes) value += before;
    }}
    __syncthreads();  // the values of an earlier call have been read
    if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / 32; ++warp) {{
        if (warp == threadIdx.x / 32) value += total;
        total += of_warp[warp];
    }}
    return value;
}}
"""
_BLOCK_HELPER = """\
// Combines the values of a block's threads, whole warps of them; each thread gets the result.
template <typename T, typename Combine>
__device__ T {name}(T value, Combine combine) {{
    __shared__ T of_warp[32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lanes));
    __syncthreads();  // the values of an earlier call have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value = combine(value, of_warp[warp]);
    return value;
}}
"""
_COLUMN_HELPER = """\
// Combines the values of the threads of one column, blockDim.y of them, a power of two; each of them gets the result.
template <typename T, typename Combine>
__device__ T {name}(T value, Combine combine) {{
    __shared__ T values[1024];
    T* mine = values + threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();  // the values of an earlier call have been read
    *mine = value;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {{
        __syncthreads();
        if (threadIdx.y < half) *mine = combine(*mine, mine[half * blockDim.x]);
    }}
    __syncthreads();
    return values[threadIdx.x];
}}
"""


@dataclass(frozen=True)
class Team:
    """The threads that share a row.

    Attributes:
        name: `warp`, `block` or `column`.
        first: number of a thread among them, as text.
        step: how many they are, as text.
        barrier: where they meet, and see what others wrote.
        row: number of a thread's team in the grid, as text.
        teams: number of teams in the grid, as text.
        threads: how many share a row; None for all of a block.
        helper: name of the function that combines their values.
        text: its definition.
        orders: combining values is a barrier, too.
        alone: condition under which a thread does what is done once a row.
        mixed: threads of several rows meet at a barrier, which none may miss.
        inside: condition under which a thread's row exists; empty where it always does.
        scan: name of the function that adds up their values in order; empty without one.
        scan_text: its definition.
    """

    name: str
    first: str
    step: str
    barrier: str
    row: str
    teams: str
    threads: int | None
    helper: str
    text: str
    orders: bool
    alone: str
    mixed: bool = False
    inside: str = ""
    scan: str = ""
    scan_text: str = ""


def warp_team(tree: KernelTree) -> Team:
    """Return the warp as a team, with names that are free in a file."""
    helper = tree.fresh("warp_reduce")
    row, teams = "blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32", "gridDim.x * (blockDim.x / 32)"
    text, lane = _WARP_HELPER.format(name=helper), tree.fresh("lane")
    barrier, alone = "__syncwarp();", f"{lane} == 0"
    scan = tree.fresh("warp_scan")
    return Team(
        "warp", lane, "32", barrier, row, teams, 32, helper, text, orders=False, alone=alone,
        scan=scan, scan_text=_WARP_SCAN.format(name=scan),
    )  # fmt: skip


def block_team(tree: KernelTree) -> Team:
    """Return the block as a team."""
    helper, scan = tree.fresh("block_reduce"), tree.fresh("block_scan")
    first, barrier = "threadIdx.x", "__syncthreads();"
    text, alone, row, teams = _BLOCK_HELPER.format(name=helper), f"{first} == 0", "blockIdx.x", "gridDim.x"
    return Team(
        "block", first, "blockDim.x", barrier, row, teams, None, helper, text, orders=True, alone=alone,
        scan=scan, scan_text=_BLOCK_SCAN.format(name=scan),
    )  # fmt: skip


def column_team(tree: KernelTree, column: str, limit: str) -> Team:
    """Return the threads of a block with one `threadIdx.x` as a team; beyond the limit they repeat the last column."""
    helper = tree.fresh("column_reduce")
    text, first, barrier = _COLUMN_HELPER.format(name=helper), "threadIdx.y", "__syncthreads();"
    inside = f"{column} < {limit}"
    alone = f"{first} == 0 && {inside}"
    row = f"{inside} ? {column} : {limit} - 1"
    return Team(
        "column", first, "blockDim.y", barrier, row, "", None, helper, text, orders=True, alone=alone,
        mixed=True, inside=inside,
    )  # fmt: skip
