"""Put a Triton row into one block: no loops over its columns, and each element loaded once, into registers.

Launches compute the block with `int.bit_length`: `triton.next_power_of_2` takes the host 3 to 7 us a call.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.triton.ast_triton import TritonTree, arguments, names, ordered_names
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_PER_WARP = (512, 256)  # elements: 16 and 8 a thread, two 16-byte loads and one of a 2-byte type
_LEAST_WARPS_LOG, _MOST_WARPS_LOG = 2, 4  # 4 and 16 warps
_RANGES = {"range", "tl.range"}
_SHAPED = {"tl.arange", "tl.zeros", "tl.full"}
_BLOCKERS = ("tl.dot", "break", "continue", "return", "while ", "inline_asm", "num_stages")


@dataclass(frozen=True)
class _Walk:
    """The loops of a kernel that walk the columns of a row; the names of the block and of the number of columns."""

    block: str
    columns: str
    loops: tuple[Node, ...]


@dataclass(frozen=True)
class _Launch:
    """A launch with an explicit block: its node, the columns passed, and the edit that sets the warps."""

    block: Node
    columns: str
    warps: Edit


def _find(tree: TritonTree) -> _Walk | None:
    parameters = {p.name: p.constexpr for p in tree.kernel.parameters}
    loops: list[Node] = []
    ends: set[tuple[str, str]] = set()
    for node in walk(tree.body):
        if node.type != "for_statement":
            continue
        call = field(node, "right")
        if call.type != "call" or text_of(field(call, "function")) not in _RANGES:
            return None
        given = [text_of(n) for n in field(call, "arguments").named_children]
        if len(given) != 3 or given[0] != "0" or node.parent != tree.body:
            return None
        ends.add((given[2], given[1]))
        loops.append(node)
    if len(ends) != 1:
        return None
    ((block, columns),) = ends
    steady = not {block, columns} & {text_of(target) for target, _ in tree.assignments}
    fits = steady and parameters.get(block) is True and parameters.get(columns) is False
    return _Walk(block, columns, tuple(loops)) if fits and _is_only_a_width(tree, block) else None


def _is_only_a_width(tree: TritonTree, block: str) -> bool:
    """Return True if the block's size is only used as the step of a loop or the length of a tensor."""
    for node in walk(tree.body):
        if node.type != "identifier" or text_of(node) != block:
            continue
        call = node.parent
        while call is not None and call.type in ("argument_list", "tuple", "list"):
            call = call.parent
        if call is None or call.type != "call" or text_of(field(call, "function")) not in _RANGES | _SHAPED:
            return False
    return True


def _launches(tree: TritonTree, found: _Walk, per_warp: int) -> list[_Launch] | None:
    """Return the launches in the kernel's file; None when one is unclear."""
    order = [p.name for p in tree.kernel.parameters]
    launches: list[_Launch] = []
    for node in walk(tree.root):
        called = field(node, "function") if node.type == "call" else None
        if called is None or called.type != "subscript" or text_of(field(called, "value")) != tree.kernel.name:
            continue
        positional, named = arguments(node)
        if any(n.type.endswith("splat") for n in positional):
            return None
        given = dict(zip(order, positional, strict=False)) | named
        block, columns = given.get(found.block), given.get(found.columns)
        if block is None or columns is None or block.type != "integer" or "meta" in text_of(columns):
            return None
        bits = f"({text_of(columns)} - 1).bit_length()"
        row = f"1 << {bits}"
        warps = f"1 << min(max({bits} - {per_warp.bit_length() - 1}, {_LEAST_WARPS_LOG}), {_MOST_WARPS_LOG})"
        end = field(node, "arguments").named_children[-1].end_byte
        there = named.get("num_warps")
        edit = Edit(span_of(there), warps) if there is not None else Edit(Span(end, end), f", num_warps={warps}")
        launches.append(_Launch(block, row, edit))
    return launches


def _straight(tree: TritonTree, found: _Walk) -> str:
    """Return the kernel's block with each loop over the columns replaced by its only step."""
    origin = tree.body.start_byte
    edits: list[Edit] = []
    for loop in found.loops:
        body, start = field(loop, "body"), text_of(field(loop, "left"))
        inner = [Edit(_from(n, body.start_byte), text) for n, text in _first_step(body, start)]
        text = apply_edits(text_of(body), inner)
        edits.append(Edit(_from(loop, origin), text.replace("\n    ", "\n")))
    return apply_edits(text_of(tree.body), edits)


def _first_step(body: Node, start: str) -> Iterator[tuple[Node, str]]:
    """Yield the uses of a loop's variable, with their text for its first value; a zero is dropped from sums."""
    for node in walk(body):
        if node.type != "identifier" or text_of(node) != start or node.parent is None:
            continue
        outer = node.parent
        if outer.type == "binary_operator" and text_of(field(outer, "operator")) == "+":
            other = field(outer, "right") if field(outer, "left") == node else field(outer, "left")
            if start not in names(other):
                yield outer, text_of(other)
                continue
        yield node, "0"


def _from(node: Node, origin: int) -> Span:
    return Span(node.start_byte - origin, node.end_byte - origin)


def _without_repeats(tree: TritonTree) -> TritonTree:
    """Return the kernel without repeated assignments, and with one load for each address."""
    values: dict[str, set[str]] = {}
    for target, value in tree.assignments:
        statement = target.parent
        plain = statement is not None and statement.type == "assignment"
        values.setdefault(text_of(target), set()).add(text_of(value) if plain else "?")
    steady = {name: next(iter(given)) for name, given in values.items() if len(given) == 1 and "?" not in given}
    moving = values.keys() - steady.keys()
    fixed = {name for name, value in steady.items() if not set(re.findall(r"\w+", value)) & moving}
    gone = list(_repeated_assignments(tree, fixed))
    loads = [one for one in _repeated_loads(tree, steady, fixed) if not any(e.span.holds(one.span) for e in gone)]
    return TritonTree(SourceFile(tree.file.path, apply_edits(tree.file.text, [*gone, *loads])), tree.kernel)


def _repeated_assignments(tree: TritonTree, fixed: set[str]) -> Iterator[Edit]:
    seen: set[str] = set()
    data = tree.file.text.encode()
    for target, _ in tree.assignments:
        name, statement = text_of(target), target.parent
        if name not in fixed or statement is None:
            continue
        if name in seen:
            start = data.rfind(b"\n", 0, statement.start_byte)
            yield Edit(Span(start, statement.end_byte), "")
        seen.add(name)


def _repeated_loads(tree: TritonTree, steady: dict[str, str], fixed: set[str]) -> Iterator[Edit]:
    stores = [call.start_byte for name in ("store", "atomic_add") for call in tree.calls(name)]
    first_store = min(stores, default=tree.body.end_byte)
    parameters = {p.name for p in tree.kernel.parameters}
    groups: dict[tuple[str, str], list[Node]] = {}
    for call in tree.calls("load"):
        positional, named = arguments(call)
        if len(positional) != 1 or named.keys() - {"mask", "other"} or call.start_byte > first_store:
            continue
        if names(positional[0]) <= fixed | parameters:
            mask = text_of(named["mask"]) if "mask" in named else ""
            groups.setdefault((text_of(positional[0]), steady.get(mask, mask)), []).append(call)
    taken: set[str] = set()
    for calls in groups.values():
        between = range(calls[0].start_byte, calls[-1].start_byte)
        moved = {text_of(target) for target, _ in tree.assignments if target.start_byte in between} - fixed
        if len(calls) > 1 and not moved & names(arguments(calls[0])[0][0]):
            yield from _one_load(tree, calls, taken)


def _one_load(tree: TritonTree, calls: list[Node], taken: set[str]) -> list[Edit]:
    """Return edits that load once, before the statement of the first call, and put that value in place of all calls.

    There are none if the calls differ in `other`. The value's new name is added to `taken`.
    """
    fills = [text_of(fill) if (fill := arguments(call)[1].get("other")) is not None else None for call in calls]
    # Without `other`, a masked load has undefined values behind its mask.
    if any(fill not in (None, fills[0]) for fill in fills):
        return []
    pointer = next(ordered_names(arguments(calls[0])[0][0]))
    used = {text_of(n) for n in walk(tree.root) if n.type == "identifier"} | taken
    wanted = re.sub(r"_?ptr$", "", pointer) + "_row"
    name = next(n for n in (wanted, *(f"{wanted}{i}" for i in range(2, 99))) if n not in used)
    taken.add(name)
    statement = calls[0]
    while statement.parent is not None and statement.parent != tree.body:
        statement = statement.parent
    at, pad = statement.start_byte, " " * statement.start_point.column
    return [Edit(Span(at, at), f"{name} = {text_of(calls[0])}\n{pad}"), *(Edit(span_of(call), name) for call in calls)]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with a block as wide as the row, rounded up to a power of two, and warps to match.

    Only where all loops walk the columns of a row by a block whose size the launches in the same file spell out.
    """
    try:
        tree = TritonTree(kernel_file, kernel)
        text = text_of(tree.body)
        if kernel.autotuned or any(word in text for word in _BLOCKERS) or (found := _find(tree)) is None:
            return
        body = _straight(tree, found)
        for per_warp in _PER_WARP:
            launches = _launches(tree, found, per_warp)
            if not launches or any(launch.block.start_byte < tree.body.end_byte for launch in launches):
                return
            edits = [Edit(span_of(tree.body), body)]
            for launch in launches:
                edits += [Edit(span_of(launch.block), launch.columns), launch.warps]
            straight = SourceFile(kernel_file.path, apply_edits(kernel_file.text, edits))
            file = _without_repeats(TritonTree(straight, kernel)).file
            label = f"the row in one block, {per_warp} elements a warp"
            yield Candidate(kernel.language, file, workload_file, label, "rewrite:whole_row")
    except LookupError:
        return
