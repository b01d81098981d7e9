"""Use 128-bit global loads and stores: each thread takes neighbouring elements and moves them as one vector.

The vector loop begins at the first element whose address is a multiple of 16 bytes. Elements before that, elements left
over, and all elements where two arrays of a loop are not aligned alike are moved one by one as before.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import dedent

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.element_loop import as_grid_stride
from kernel_lsp.refine.rewrites.reading.accesses import AccessGroup, Modulus, find_modulus, lane_groups, shared_between
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    indent_at,
    names_in_order,
    without_trailing_blanks,
    written,
)
from kernel_lsp.refine.rewrites.reading.loops import IndexLoop, find_loops
from kernel_lsp.refine.rewrites.writing.launches import fewer_blocks
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import text_of

VECTOR_BYTES = 16
_SIZES: Mapping[str, int] = {
    name: size
    for size, names in {
        1: ("char", "signed char", "unsigned char", "int8_t", "uint8_t", "bool", "__nv_fp8_e4m3", "__nv_fp8_e5m2"),
        2: (
            *("half", "__half", "__nv_bfloat16", "nv_bfloat16", "short", "unsigned short", "int16_t", "uint16_t"),
            *("at::Half", "c10::Half", "at::BFloat16", "c10::BFloat16"),
        ),
        4: ("float", "int", "unsigned", "unsigned int", "int32_t", "uint32_t", "half2", "__half2", "__nv_bfloat162"),
        8: ("double", "long long", "unsigned long long", "int64_t", "uint64_t", "size_t", "float2", "int2"),
    }.items()
    for name in names
}
_VECTORS = {"float": "float4", "int": "int4", "double": "double2"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan for vectorising one loop.

    Attributes:
        loop: the loop.
        leaders: groups with one offset, which decide where the vector loop may run.
        followers: groups with other offsets, which may be out of step with the leaders.
        lanes: elements in a vector; None for `16 / sizeof(T)` of a template's T.
        modulus: what rows of the loop's range are, where some group is modular.
    """

    loop: IndexLoop
    leaders: tuple[AccessGroup, ...]
    followers: tuple[AccessGroup, ...]
    lanes: int | None
    modulus: Modulus | None

    @property
    def groups(self) -> tuple[AccessGroup, ...]:
        return self.leaders + self.followers


def _signature(tree: KernelTree, group: AccessGroup) -> str:
    """Return the offset from the array that the group's pointer was derived from."""
    base = tree.base(group.array)
    value = tree.values.get(group.array)
    made = tree.canonical(value) if value is not None and base != group.array else base
    return re.sub(rf"(?<![.\w]){base}\b", "", made, count=1).strip("()+") + "".join(group.offset.split())


def _plan(tree: KernelTree, loop: IndexLoop, *, rows: bool) -> _Plan | None:
    modulus = find_modulus(tree, loop) if rows else None
    groups = lane_groups(tree, loop, modulus)
    if not groups or (not loop.serial and shared_between(tree, loop)):
        return None
    if loop.limit.isdigit() and int(loop.limit) < 2 * VECTOR_BYTES:
        return None
    types = {p.removeprefix("typename ").removeprefix("class ").strip() for p in tree.kernel.template_parameters}
    opened = next((g.element for g in groups if g.element in types), None)
    chosen = [g for g in groups if (g.element == opened if opened else g.kind in _SIZES)]
    if not chosen or (rows and not any(g.modular for g in chosen)):
        return None
    plain = [g for g in chosen if not g.modular]
    first = next((g for g in plain if g.written), plain[0] if plain else None)
    leaders = [g for g in plain if first and _signature(tree, g) == _signature(tree, first)]
    leaders.sort(key=lambda g: g is not first)
    lanes = None if opened else VECTOR_BYTES // min(_SIZES[g.kind] for g in chosen)
    followers = [g for g in chosen if g not in leaders]
    return _Plan(loop, tuple(leaders), tuple(followers), lanes, modulus)


def _address(group: AccessGroup, head: str | None) -> str:
    return " + ".join(part for part in (group.array, group.offset, head) if part)


def _aligned(addresses: list[str]) -> str:
    parts = [f"reinterpret_cast<size_t>({address})" for address in addresses]
    joined = parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"
    return f"{joined} % {VECTOR_BYTES} == 0"


@dataclass(frozen=True, slots=True)
class KeptVectors:
    """The first vectors of each thread's part of a row, kept in registers from the first loop over the row to the last.

    Attributes:
        name: the array of vectors.
        vectors: its length.
        address: the row's first element, as text.
        first: the loop that fills it, by node id.
    """

    name: str
    vectors: int
    address: str
    first: int


class _Writer:
    """Writes one plan's loops; its fields are the names that they use."""

    def __init__(self, tree: KernelTree, plan: _Plan, kept: KeptVectors | None = None) -> None:
        self.tree, self.plan, self.loop = tree, plan, plan.loop
        self.kept = kept
        name = self.loop.variable
        self.count, self.vector, self.lane = (tree.fresh(f"{name}_{w}") for w in ("vectors", "vector", "lane"))
        self.lanes = str(plan.lanes) if plan.lanes else tree.fresh(f"{name}_lanes")
        self.limit = self.loop.limit if self.loop.limit.isidentifier() else f"({self.loop.limit})"
        # A serial loop may depend on the order, and rows match vectors only when both begin at 0.
        self.head = None if self.loop.serial or plan.modulus else tree.fresh(f"{name}_head")
        self.buffers: dict[int, str] = {}
        self.flags: dict[int, str] = {}
        for group in plan.groups:
            number = sum(other.array == group.array for other in plan.groups[: len(self.buffers)])
            suffix = f"_{number}" if number else ""
            self.buffers[id(group)] = tree.fresh(f"{group.array}_lanes{suffix}")
            if group in plan.followers and not group.modular:
                self.flags[id(group)] = tree.fresh(f"{group.array}_aligned{suffix}")

    def first(self) -> str:
        """Return the index of a vector's first element."""
        return " + ".join(part for part in (self.head, f"{self.vector} * {self.lanes}") if part)

    def prologue(self) -> Iterator[str]:
        loop, plan = self.loop, self.plan
        limit = self.limit
        if plan.lanes is None:
            yield f"constexpr int {self.lanes} = {VECTOR_BYTES} / sizeof({plan.groups[0].element});"
        conditions = [_aligned([_address(g, self.head) for g in plan.leaders])] if plan.leaders else []
        if self.head:
            leader = plan.leaders[0]
            start = f"reinterpret_cast<size_t>({_address(leader, None)})"
            yield (
                f"const {loop.type} {self.head} = (-{start} % {VECTOR_BYTES}) / sizeof({leader.element});  "
                "// elements ahead of the first aligned one"
            )
            conditions = [f"{self.head} < {limit}", *(conditions if len(plan.leaders) > 1 else ())]
        if plan.modulus:
            modular = list(dict.fromkeys(g.array for g in plan.followers if g.modular))
            conditions += [f"{text_of(plan.modulus.width)} % {self.lanes} == 0", _aligned(modular)]
        for group in plan.followers:
            if id(group) in self.flags:
                yield f"const bool {self.flags[id(group)]} = {_aligned([_address(group, self.head)])};"
        span = f"({limit} - {self.head})" if self.head else limit
        yield f"const {loop.type} {self.count} = {' && '.join(conditions)} ? {span} / {self.lanes} : 0;"

    def moves(self, group: AccessGroup, *, load: bool) -> Iterator[str]:
        kind = _VECTORS.get(group.kind, "uint4")
        chunks = self.plan.lanes * _SIZES[group.kind] // VECTOR_BYTES if self.plan.lanes else 1
        constant = "const " if load else ""
        start = f"reinterpret_cast<{constant}{kind}*>({_address(group, None if group.modular else self.head)})"
        buffer, flag = self.buffers[id(group)], self.flags.get(id(group))
        pad = "    " if flag else ""
        if flag:
            yield f"if ({flag}) {{"
        for chunk in range(chunks):
            near = (
                str(chunk) if group.modular else self.vector if chunks == 1 else f"{self.vector} * {chunks} + {chunk}"
            )
            mine, other = f"reinterpret_cast<{kind}*>({buffer})[{chunk}]", f"{start}[{near}]"
            yield pad + (f"{mine} = {other};" if load else f"{other} = {mine};")
        if flag:
            other = f"{group.array}[{group.offset}{' + ' if group.offset else ''}{self.first()} + {self.lane}]"
            mine = f"{buffer}[{self.lane}]"
            yield "} else {"
            yield "#pragma unroll"
            yield f"    for (int {self.lane} = 0; {self.lane} < {self.lanes}; ++{self.lane})"
            yield "        " + (f"{mine} = {other};" if load else f"{other} = {mine};")
            yield "}"

    def vector_loops(self) -> Iterator[str]:
        loop, kept = self.loop, self.kept
        start = loop.start
        if kept:
            step = self.tree.fresh(f"{loop.variable}_step")
            yield "#pragma unroll"
            yield f"for (int {step} = 0; {step} < {kept.vectors}; ++{step}) {{"
            yield f"    const {loop.type} {self.vector} = {loop.start} + {step} * {loop.stride};"
            yield f"    if ({self.vector} < {self.count}) {{"
            yield from _shifted(_shifted(self.vector_step(f"{kept.name}[{step}]")))
            yield from ("    }", "}")
            start = f"{loop.start} + {kept.vectors} * {loop.stride}"
        vector = self.vector
        yield f"for ({loop.type} {vector} = {start}; {vector} < {self.count}; {vector} += {loop.stride}) {{"
        yield from _shifted(self.vector_step(None))
        yield "}"

    def vector_step(self, register: str | None) -> Iterator[str]:
        """Yield the work on one vector; the kept part of the row is in `register`, filled in the first loop."""
        loop, plan = self.loop, self.plan
        if plan.modulus:
            width = text_of(plan.modulus.width)
            first = f"({self.first()})"
            yield f"const {loop.type} {plan.modulus.remainder} = {first} % {width};"
            if plan.modulus.quotients:
                yield f"const {loop.type} {plan.modulus.quotient} = {first} / {width};"
        for group in plan.groups:
            buffer = self.buffers[id(group)]
            yield f"alignas({VECTOR_BYTES}) {group.element} {buffer}[{self.lanes}];"
            held = register and self.kept and _address(group, None) == self.kept.address
            kind = _VECTORS.get(group.kind, "uint4")
            if group.read and not (held and self.kept and self.kept.first != loop.node.id):
                yield from self.moves(group, load=True)
                if held:
                    yield f"{register} = reinterpret_cast<{kind}*>({buffer})[0];"
            elif held:
                yield f"reinterpret_cast<{kind}*>({buffer})[0] = {register};"
        yield "#pragma unroll"
        yield f"for (int {self.lane} = 0; {self.lane} < {self.lanes}; ++{self.lane}) {{"
        body = self.body()
        if loop.variable in _words(body):
            yield f"    const {loop.type} {loop.variable} = {self.first()} + {self.lane};"
        yield _shift(body)
        yield "}"
        for group in plan.groups:
            if group.written:
                yield from self.moves(group, load=False)

    def rest_loop(self) -> Iterator[str]:
        loop = self.loop
        body = text_of(loop.body)
        if self.head is None:
            start = loop.start if loop.start == "0" else f" + {loop.start}"
            start = f"{self.count} * {self.lanes}" + ("" if start == "0" else start)
            head = f"for ({loop.type} {loop.variable} = {start}; {loop.variable} < {loop.limit}; "
            yield f"{head}{loop.variable} += {loop.stride}) {{"
            yield _shift(_inner(loop.body, body))
            yield "}"
            return
        rest = self.tree.fresh(f"{loop.variable}_rest")
        yield (
            f"for ({loop.type} {rest} = {loop.start}; {rest} < {self.limit} - {self.count} * {self.lanes}; "
            f"{rest} += {loop.stride}) {{"
        )
        past = f"{rest} + {self.count} * {self.lanes}"
        yield f"    const {loop.type} {loop.variable} = {rest} < {self.head} ? {rest} : {past};"
        yield _shift(_inner(loop.body, body))
        yield "}"

    def body(self) -> str:
        """Return the loop's body for one lane, without braces."""
        origin = self.loop.body.start_byte
        names = {
            Span(node.start_byte, node.end_byte): f"{self.buffers[id(group)]}[{self.lane}]"
            for group in self.plan.groups
            for node in group.nodes
        }
        if modulus := self.plan.modulus:
            names |= {Span(n.start_byte, n.end_byte): modulus.quotient for n in modulus.quotients}
            remainder = f"({modulus.remainder} + {self.lane})"
            names |= {Span(n.start_byte, n.end_byte): remainder for n in modulus.remainders}
        outer = {s: t for s, t in names.items() if not any(o.holds(s) and o != s for o in names)}
        edits = [Edit(Span(s.start - origin, s.end - origin), text) for s, text in outer.items()]
        return _inner(self.loop.body, apply_edits(text_of(self.loop.body), edits))

    def edit(self) -> Edit:
        pad = indent_at(self.tree.file.text, self.loop.node.start_byte)
        lines = [*self.prologue(), *self.vector_loops(), *self.rest_loop()]
        inner = [_shift(line, pad + "    ") for line in lines]
        head = ["{"]
        if self.kept and self.kept.first == self.loop.node.id:
            kind = _VECTORS.get(self.plan.leaders[0].kind, "uint4")
            head = [f"{kind} {self.kept.name}[{self.kept.vectors}];", pad + "{"]
        return Edit(self.loop.span, without_trailing_blanks("\n".join([*head, *inner, pad + "}"])))


def _shift(text: str, by: str = "    ") -> str:
    return "\n".join(line if line.startswith("#") else by + line for line in text.split("\n"))


def _shifted(lines: Iterator[str]) -> Iterator[str]:
    return (_shift(line) for line in lines)


def _inner(body: Node, text: str) -> str:
    """Return the text of a loop's body without its braces, moved to the left margin."""
    if body.type == "compound_statement":
        text = text[1:-1].strip()
    first, *others = text.split("\n")
    return "\n".join([first, *dedent("\n".join(others)).split("\n")]) if others else first


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def _keeping(tree: KernelTree, plans: list[_Plan], vectors: int) -> dict[int, tuple[_Plan, KeptVectors]]:
    """Return, by the loops' node ids, the plans of loops that share the most read row, and the part of it kept."""
    writes = {tree.base(next(names_in_order(t))) for t in written(tree.body) if t.type == "subscript_expression"}
    over: dict[tuple[str, ...], list[_Plan]] = {}
    for plan in plans:
        for group in plan.leaders:
            loop, parent = plan.loop, plan.loop.node.parent
            chunks = plan.lanes * _SIZES[group.kind] // VECTOR_BYTES if plan.lanes else 1
            if not group.read or tree.base(group.array) in writes or loop.serial or plan.modulus or chunks != 1:
                continue
            header = (loop.type, loop.start, loop.limit, loop.stride, str(parent.id if parent else 0), str(plan.lanes))
            over.setdefault((_address(group, None), *header), []).append(plan)
    if not over:
        return {}
    (address, *_), sharing = max(over.items(), key=lambda item: len(item[1]))
    if len(sharing) < 2:
        return {}
    sharing.sort(key=lambda p: p.loop.span)
    kept = KeptVectors(tree.fresh("kept"), vectors, address, sharing[0].loop.node.id)
    led = (replace(p, leaders=tuple(sorted(p.leaders, key=lambda g: _address(g, None) != address))) for p in sharing)
    return {p.loop.node.id: (p, kept) for p in led}


def vectorized(tree: KernelTree, *, rows: bool = False, keep: int = 0) -> tuple[KernelTree, int] | None:
    """Return the kernel with all possible loops vectorised, and the factor by which its grid shrinks, or None.

    With `rows`, arrays indexed by `i % width` move as vectors too where `width` is a multiple of the lanes, and nothing
    does where it is not. With `keep`, the row that several loops read stays in that many vectors of registers; None
    when no row is read again.
    """
    plans: list[_Plan] = []
    for loop in find_loops(tree):
        holds_other = any(loop.span.holds(p.loop.span) for p in plans)
        if not holds_other and (plan := _plan(tree, loop, rows=rows)):
            plans.append(plan)
    keeping = _keeping(tree, plans, keep) if keep else {}
    if not plans or (keep and not keeping):
        return None
    writers = (_Writer(tree, *keeping.get(p.loop.node.id, (p, None))) for p in plans)
    return tree.edited(*(w.edit() for w in writers)), max((p.lanes or 4 for p in plans if p.loop.over_grid), default=1)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with vector loops; a one-element kernel also gets a grid with fewer threads."""
    for rows, label in ((False, "128-bit loads and stores"), (True, "128-bit loads and stores, row by row")):
        try:
            tree = KernelTree(kernel_file, kernel)
            looped = as_grid_stride(tree)
            result = vectorized(looped, rows=rows) if looped else None
            if result is None or result[1] == 1:
                looped, result = None, vectorized(tree, rows=rows)
        except LookupError:
            return
        if result:
            done, lanes = result
            files = (fewer_blocks(done, workload_file, lanes) if looped else None) or (done.file, workload_file)
            yield Candidate(kernel.language, *files, label, "rewrite:vectorize")
