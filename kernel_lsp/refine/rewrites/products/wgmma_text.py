"""Text of products by warpgroups: the functions that they need, for one shape of product."""

from collections.abc import Iterator

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of_kernel
from kernel_lsp.source.text import Edit

_SPACE = "wgmma"
_TILES = """\
// Products by warpgroups, of 128 threads each (sm_90a). Tiles lie in shared memory as the tensor cores read them: in
// panels of 16, 32 or 64 columns, with pieces of 8 elements swizzled, so that neighbouring rows are in other banks.
namespace wgmma {
template <class T, int PANELS, int ROWS, int COLUMNS>
__device__ inline T& at(T (&tile)[PANELS][ROWS][COLUMNS], int row, int column) {
    const int piece = column % COLUMNS / 8 ^ row * COLUMNS / 64 % (COLUMNS / 8);
    return tile[column / COLUMNS][row][piece * 8 + column % 8];
}

// What begins at a row and column of a tile, a multiple of 8 rows: groups of 8 rows follow each other, as do panels.
template <class T, int PANELS, int ROWS, int COLUMNS>
__device__ inline unsigned long long descriptor(T (&tile)[PANELS][ROWS][COLUMNS], int row, int column) {
    constexpr unsigned long long row_bytes = COLUMNS * sizeof(T), swizzle = COLUMNS == 64 ? 1 : COLUMNS == 32 ? 2 : 3;
    const void* first = &tile[column / COLUMNS][row][column % COLUMNS];
    const unsigned long long address = __cvta_generic_to_shared(first);
    return (address & 0x3ffff) >> 4 | ROWS * row_bytes >> 4 << 16 | 8 * row_bytes >> 4 << 32 | swizzle << 62;
}

// The tensor cores come after what this thread has written to shared memory.
__device__ inline void publish_writes() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Products come after what this thread has done with the registers of the sums.
__device__ inline void begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Returns when all products of the warpgroup have been added, and the tiles may be filled again.
__device__ inline void finish() {
    asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
"""
_STORE = """\
// Puts down 16 x 16 sums of this warp, as `store_matrix_sync` does: a thread has pairs in two rows of each 8 columns.
__device__ inline void store(float* to, const float* sums, unsigned distance) {
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    to += lane / 4 * distance + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        float2* pair = reinterpret_cast<float2*>(to + i / 2 % 2 * 8 * distance + i / 4 * 8);
        *pair = make_float2(sums[i], sums[i + 1]);
    }
}
"""


def _listed(parts: list[str], indent: str, most: int = 110) -> list[str]:
    """Return parts with commas between, in lines."""
    lines, line = list[str](), ""
    for part in parts:
        if line and len(indent) + len(line) + len(part) > most:
            lines.append(f"{indent}{line.rstrip()}")
            line = ""
        line += f"{part}, "
    return [*lines, f"{indent}{line.rstrip(', ')}"]


def _multiply(columns: int, kind: str, turned: tuple[bool, bool]) -> Iterator[str]:
    """Yield the lines of the function that is one instruction."""
    count = columns // 2
    yield f"// Adds the product of 64 rows and {columns} columns for 16 steps of K."
    yield f"__device__ inline void multiply(float (&d)[{count}], unsigned long long a, unsigned long long b) {{"
    yield "    asm volatile("
    yield f'        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{"'
    registers = _listed([f"%{i}" for i in range(count)], "", 100)
    yield from (f'        "{line} "' for line in registers[:-1])
    yield f'        "{registers[-1]}}}, %{count}, %{count + 1}, 1, 1, 1, {int(turned[0])}, {int(turned[1])};"'
    operands = _listed([f'"+f"(d[{i}])' for i in range(count)], "          ")
    yield f"        : {operands[0].lstrip()}"
    yield from operands[1:]
    yield '        : "l"(a), "l"(b));'
    yield "}"


def check_name(tree: KernelTree) -> None:
    """Refuse a file that uses the functions' namespace.

    Raises:
        NotApplicableError: it does.
    """
    if tree.fresh(_SPACE) != _SPACE or f"namespace {_SPACE}" in tree.file.text:
        raise NotApplicableError(f"the file uses the name `{_SPACE}`")


def helpers(tree: KernelTree, columns: int, kind: str, turned: tuple[bool, bool], *, store: bool) -> Edit:
    """Return the edit that defines the functions ahead of a kernel and its comment.

    Args:
        tree: the kernel.
        columns: those of one instruction.
        kind: `f16` or `bf16`.
        turned: for A and for B, whether neighbours in a tile are rows of A, columns of B.
        store: with what takes the place of `store_matrix_sync`.
    """
    multiply = "\n".join(_multiply(columns, kind, turned)) + "\n"
    parts = [_TILES, multiply, *([_STORE] if store else []), "}  // namespace wgmma\n\n"]
    return ahead_of_kernel(tree, "\n".join(parts[:-1]) + parts[-1])
