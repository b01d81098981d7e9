"""Teams of threads: how the threads of a warp or a block are numbered, meet, and combine their values."""

from dataclasses import dataclass

from kernel_lsp.refine.rewrites.ast_cuda import KernelTree
from kernel_lsp.source.text import Edit, Span

_WARP_HELPER = """\
// Combines the values of a warp's threads; each of them gets the result.
template <typename T, typename Combine>
__device__ T {name}(T value, Combine combine) {{
    for (int lanes = 16; lanes > 0; lanes /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lanes));
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


@dataclass(frozen=True)
class Team:
    """The threads that share a row.

    Attributes:
        name: `warp` or `block`.
        first: number of a thread among them, as text.
        step: how many they are, as text.
        barrier: where they meet, and see what others wrote.
        row: number of a thread's team in the grid, as text.
        teams: number of teams in the grid, as text.
        threads: how many share a row; None for all of a block.
        helper: name of the function that combines their values.
        text: its definition.
        orders: combining values is a barrier, too.
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


def warp_team(tree: KernelTree) -> Team:
    """Return the warp as a team, with names that are free in a file."""
    helper = tree.fresh("warp_reduce")
    row, teams = "blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32", "gridDim.x * (blockDim.x / 32)"
    text = _WARP_HELPER.format(name=helper)
    return Team("warp", tree.fresh("lane"), "32", "__syncwarp();", row, teams, 32, helper, text, orders=False)


def block_team(tree: KernelTree) -> Team:
    """Return the block as a team."""
    helper = tree.fresh("block_reduce")
    text = _BLOCK_HELPER.format(name=helper)
    barrier = "__syncthreads();"
    return Team(
        "block", "threadIdx.x", "blockDim.x", barrier, "blockIdx.x", "gridDim.x", None, helper, text, orders=True
    )


def defined_before(tree: KernelTree, text: str) -> Edit:
    """Return the edit that defines functions ahead of a kernel, outside of `extern "C"` and the comment above it."""
    node = tree.body
    while node.parent is not None and node.parent.type not in ("translation_unit", "declaration_list"):
        node = node.parent
    outer = node.parent
    while outer is not None and outer.type != "translation_unit":
        if outer.type == "linkage_specification":
            node = outer
        outer = outer.parent
    at = node
    while at.prev_sibling is not None and at.prev_sibling.type == "comment":
        if at.start_point.row - at.prev_sibling.end_point.row > 1:
            break
        at = at.prev_sibling
    previous = at.prev_sibling
    close = previous is not None and at.start_point.row - previous.end_point.row == 1 and previous.type[:7] != "preproc"
    return Edit(Span(at.start_byte, at.start_byte), "\n" * close + f"{text}\n")
