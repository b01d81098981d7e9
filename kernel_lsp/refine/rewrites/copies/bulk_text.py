"""Text of bulk copies: the functions that they need, and the statements that bring rows of tiles by them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from kernel_lsp.refine.rewrites.copies.block_copies import CopiedRows
from kernel_lsp.refine.rewrites.copies.block_names import Tile
from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of_kernel
from kernel_lsp.refine.rewrites.writing.spelling import as_factor, closed, summed
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of, walk

_SPACE = "bulk"
_HELPERS = """\
// Bulk copies from global to shared memory. A phase of a barrier ends when its one arrival has been made and all bytes
// that were announced have come.
namespace bulk {
__device__ inline unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ inline void init(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

// The copy engine sees the barriers that this thread has initialised.
__device__ inline void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The copy engine comes after what this thread has written to shared memory.
__device__ inline void publish_writes() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void announce(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ inline void wait(unsigned long long* barrier, unsigned parity) {
    asm volatile(
        "{\\n.reg .pred done;\\n"
        "again:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n@!done bra again;\\n}" ::"r"(
            shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ inline bool is_aligned(const void* p) {
    return reinterpret_cast<unsigned long long>(p) % 16 == 0;
}

// Both addresses and the bytes are multiples of 16.
__device__ inline void copy(void* to, const void* from, unsigned bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
}  // namespace bulk

"""


def helpers(tree: KernelTree) -> Edit:
    """Return the edit that defines the functions ahead of a kernel and its comment, if the file does not yet.

    Raises:
        NotApplicableError: the file uses their namespace's name otherwise.
    """
    if _HELPERS in tree.file.text:
        return Edit(Span(0, 0), "")
    if tree.fresh(_SPACE) != _SPACE:
        raise NotApplicableError(f"the file uses the name `{_SPACE}`")
    return ahead_of_kernel(tree, _HELPERS)


def aligned(tree: KernelTree, tiles: Iterable[Tile]) -> Iterator[Edit]:
    """Yield the edits that align tiles as bulk copies want them, where a declaration does not say it."""
    declarations = [tree.declarations[tile.name][0] for tile in tiles]
    for node in {one.id: one for one in declarations}.values():
        if "align" not in text_of(node):
            shared = next(n for n in walk(node) if text_of(n) == "__shared__" and not n.children)
            yield Edit(span_of(shared), "__shared__ alignas(128)")


def prepared(thread: str, barriers: str, count: str) -> Iterator[str]:
    """Yield the lines that initialise `count` barriers."""
    yield f"if ({thread} == 0) {{"
    yield f"    for (int s = 0; s < {count}; ++s) bulk::init(&{barriers}[s]);"
    yield "    bulk::publish_barriers();"
    yield "}"
    yield "__syncthreads();"


def numbered(shape: tuple[int, int, int], thread: str) -> Iterator[str]:
    """Yield the line that numbers the threads of a block, where it has more than one axis."""
    if shape[1:] != (1, 1):
        plane = "threadIdx.y" if shape[2] == 1 else "(threadIdx.z * blockDim.y + threadIdx.y)"
        yield f"const int {thread} = {plane} * blockDim.x + threadIdx.x;"


def thread_number(tree: KernelTree, shape: tuple[int, int, int]) -> str:
    """Return what the number of a thread in its block is called."""
    return "threadIdx.x" if shape[1:] == (1, 1) else tree.fresh("thread")


def _signed(amount: Polynomial, sign: int) -> Polynomial:
    """Return the part of a polynomial with one sign, without it."""
    return Polynomial({key: abs(n) for key, n in amount.terms.items() if n * sign > 0})


def bound(guard: CopyGuard) -> str:
    """Return a guard as an inequality without negative factors."""
    return f"{summed(_signed(guard.amount, 1))} < {summed(_signed(guard.amount, -1))}"


def conditions(every: Sequence[CopiedRows]) -> list[str]:
    """Return what has to hold for bulk copies to do what threads do, each once."""
    found: list[str] = []
    for rows in every:
        found += [bound(guard) for guard in rows.guards]
        per_piece = 16 // rows.tile.element_bytes
        if any(n % per_piece for n in rows.distance.terms.values()):
            found.append(f"{closed(summed(rows.distance))} % {per_piece} == 0")
        found.append(f"bulk::is_aligned({_source(rows, None)})")
    return list(dict.fromkeys(found))


def _source(rows: CopiedRows, row: str | None) -> str:
    """Return the address of a row of the source; of the first row for None."""
    if any(n < 0 for n in (*rows.offset.terms.values(), *rows.distance.terms.values())):
        raise NotApplicableError(f"rows of `{rows.source}` that lie backwards")
    offset, parts = rows.offset, [rows.source]
    unknown = next((key[0] for key, n in rows.distance.terms.items() if len(key) == 1 and n == 1), None)
    factor = offset.factor(unknown) if unknown is not None and len(rows.distance.terms) == 1 else None
    if unknown is not None and factor is not None:
        offset = Polynomial({key: n for key, n in offset.terms.items() if unknown not in key})
        which = " + ".join([*([summed(factor)] if factor.terms else []), *([row] if row else [])])
        parts += [f"(size_t){closed(which)} * {as_factor(unknown)}"] if which else []
    elif row is not None and rows.distance.terms:
        parts.append(f"(size_t){row} * {closed(summed(rows.distance))}")
    return " + ".join([*parts, *([summed(offset)] if offset.terms else [])])


@dataclass(frozen=True)
class BulkRows:
    """Writes the copies of rows.

    Attributes:
        every: the rows.
        stage: index of the stage that is put ahead of all others, if the tiles get one.
        thread: number of a thread in its block.
        threads: threads of a block.
        barrier: address of the barrier.
    """

    every: Sequence[CopiedRows]
    stage: str | None
    thread: str
    threads: int
    barrier: str

    def total(self) -> str:
        """Return the bytes of all rows, as text."""
        parts: list[str] = []
        for rows in self.every:
            extents, name = self._within(rows)
            whole = rows.rows * rows.columns == prod(extents)
            parts.append(f"sizeof({name})" if whole else f"{rows.rows} * {self._row_bytes(rows)}")
        return " + ".join(parts)

    def copies(self, when: str) -> Iterator[str]:
        """Yield the statements that bring the rows: a thread asks for each, or for every so many where few do."""
        asked: dict[str, list[str]] = {}
        for rows in self.every:
            row = "0" if rows.rows == 1 else self.thread if rows.rows <= self.threads else "row"
            if rows.rows == 1:
                head = f"if ({when}{self.thread} == 0) {{"
            elif rows.rows <= self.threads:
                head = f"if ({when}{self.thread} < {rows.rows}) {{"
            else:
                head = f"for (int row = {self.thread}; {when}row < {rows.rows}; row += {self.threads}) {{"
            target, source = self._target(rows, row), _source(rows, None if rows.rows == 1 else row)
            lines = asked.setdefault(head, [])
            lines.append(f"    bulk::copy({target}, {source},")
            lines.append(f"               {self._row_bytes(rows)}, {self.barrier});")
        for head, calls in asked.items():
            yield from (head, *calls, "}")

    def _within(self, rows: CopiedRows) -> tuple[tuple[int, ...], str]:
        """Return the extents that rows lie in, and an array of these: of one stage, where the tile has stages."""
        extents, name = rows.tile.extents, rows.tile.name
        if self.stage is not None:
            return extents, f"{name}[0]"
        return (extents[1:], f"{name}[0]") if len(extents) > 2 else (extents, name)

    def _row_bytes(self, rows: CopiedRows) -> str:
        extents, name = self._within(rows)
        if rows.columns == extents[-1] and len(extents) <= 2:
            return f"sizeof({name}{'[0]' * (len(extents) - 1)})"
        if rows.rows == 1 and rows.columns == prod(extents):
            return f"sizeof({name})"
        return f"{rows.columns} * sizeof({rows.tile.type})"

    def _target(self, rows: CopiedRows, row: str) -> str:
        """Return the address of a row in its stage."""
        (extents, _), place, start, moved = self._within(rows), rows.tile.name, rows.start, rows.moved
        if self.stage is not None:
            place += f"[{self.stage}]"
        elif len(extents) < len(rows.tile.extents):
            of_stage = prod(extents)
            if any(n % of_stage for n in moved.terms.values()):
                raise NotApplicableError(f"which stage of `{rows.tile.name}` is filled is not known")
            stages = Polynomial({key: n // of_stage for key, n in moved.terms.items()}) + number(start // of_stage)
            start, moved, index = start % of_stage, number(0), summed(stages)
            place += f"[{index[1:-1] if (index,) in stages.terms and index.startswith('(') else index}]"
        further = [summed(moved)] if moved.terms else []
        if len(extents) == 2 and rows.pitch == extents[1] and start % rows.pitch == 0 and not further:
            first = start // rows.pitch
            return f"{place}[{f'{first} + ' if first else ''}{row}]"
        base = f"&{place}{'[0]' * len(extents)}" if len(extents) > 1 else place
        rest = [f"{row} * {rows.pitch}"] if rows.rows > 1 else []
        return " + ".join([base, *rest, *([str(start)] if start else []), *further])
