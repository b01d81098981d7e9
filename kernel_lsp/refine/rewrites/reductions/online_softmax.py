"""One pass for a row's maximum and its sum of exponentials, instead of one for each.

Recognised are two loops over the same row in which every thread takes the same elements, `m = fmaxf(m, x)` and then
`s += expf(x - M)`, with M the maximum after the threads have met. In the new first loop a thread's own sum is rescaled
whenever its own maximum grows; the second loop becomes one rescaling to M. After M. Milakov and N. Gimelshein, "Online
normalizer calculation for softmax" (2018).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    assigned,
    comment_free,
    indent_at,
    names,
    without_trailing_blanks,
)
from kernel_lsp.refine.rewrites.reading.loops import IndexLoop, find_loops
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, text_of, walk

_LET = r"(?:(?:const)?float(?P<v>\w+)=(?P<x>[^;]+);)?"
_MAXIMUM = re.compile(_LET + r"(?P<m>\w+)=(?:fmaxf|max)\((?P<a>[^,]+),(?P<b>.+)\);")
_SUM = re.compile(_LET + r"(?P<s>\w+)\+=(?P<exp>expf|__expf)\((?P<y>.+)-(?P<M>\w+)\);")


@dataclass(frozen=True, slots=True)
class _Pair:
    first: IndexLoop
    second: IndexLoop
    value: str  # the element, as text without white space
    maximum: str
    total: str
    exp: str
    shared_maximum: str


def _body(loop: IndexLoop) -> str:
    text = comment_free(loop.body)
    return text[1:-1] if text.startswith("{") else text


def _element(match: re.Match[str], used: str) -> str:
    return match["x"] if match["v"] and used == match["v"] else used


def _pair(tree: KernelTree, first: IndexLoop, second: IndexLoop) -> _Pair | None:
    same = all(
        "".join(getattr(first, part).split()) == "".join(getattr(second, part).split())
        for part in ("type", "variable", "start", "limit", "stride")
    )
    top, summed = _MAXIMUM.fullmatch(_body(first)), _SUM.fullmatch(_body(second))
    if not (same and top and summed) or first.node.parent != second.node.parent or first.node == second.node:
        return None
    other = [side for side in (top["a"], top["b"]) if side != top["m"]]
    if len(other) != 1 or {top["m"], summed["s"]} & names(field(first.node, "condition")):
        return None
    value = _element(top, other[0])
    if value != _element(summed, summed["y"]) or "[" not in value or ";" in value or "++" in value:
        return None
    types = {text_of(field(tree.declarations[n][0], "type")) for n in (top["m"], summed["s"]) if n in tree.declarations}
    if types != {"float"}:
        return None
    return _Pair(first, second, value, top["m"], summed["s"], summed["exp"], summed["M"])


def _unsummed_between(tree: KernelTree, pair: _Pair) -> bool:
    """Return True if the sum is 0 before the second loop, the row is not written, and threads synchronise between."""
    declaration, value = tree.declarations[pair.total]
    if (
        value is None
        or not re.fullmatch(r"0(\.0*)?f?", text_of(value))
        or declaration.end_byte > pair.second.span.start
    ):
        return False
    between = tree.file.text.encode()[pair.first.span.end : pair.second.span.start].decode()
    if not tree.collective(between):
        return False
    arrays = {tree.base(n) for n in re.findall(r"\w+", pair.value)} & {tree.base(p) for p in tree.pointers}
    for node in walk(tree.body):
        inside = node.end_byte <= pair.second.span.start
        stores = node.type == "assignment_expression" and field(node, "left").type == "subscript_expression"
        if inside and stores and {tree.base(n) for n in names(field(node, "left"))} & arrays:
            return False
        if inside and pair.total in assigned(node):
            return False
    return bool(arrays)


def _fused(tree: KernelTree, pair: _Pair) -> list[Edit]:
    loop, total, top = pair.first, pair.total, pair.maximum
    name = loop.variable
    pad = indent_at(tree.file.text, loop.node.start_byte)
    own_top, own_total = tree.fresh(f"own_{top}"), tree.fresh(f"own_{total}")
    value = tree.fresh("element")
    element = _spelling(pair)
    lines = [
        f"float {own_total} = 0.0f;",
        f"for ({loop.type} {name} = {loop.start}; {name} < {loop.limit}; {name} += {loop.stride}) {{",
        f"    const float {value} = {element};",
        f"    if ({value} > {top}) {{",
        f"        {own_total} = {own_total} * {pair.exp}({top} - {value}) + 1.0f;",
        f"        {top} = {value};",
        "    } else {",
        "        // Equal ones need no exponential, which for two infinities would not be 1.",
        f"        {own_total} += {value} == {top} ? 1.0f : {pair.exp}({value} - {top});",
        "    }",
        "}",
        f"const float {own_top} = {top};",
    ]
    rescaled = f"{total} = {own_total} * {pair.exp}({own_top} - {pair.shared_maximum});"
    first = without_trailing_blanks(f"\n{pad}".join(lines))
    return [Edit(loop.span, first), Edit(pair.second.span, rescaled)]


def _spelling(pair: _Pair) -> str:
    """Return the element as the user wrote it."""
    for node in walk(pair.first.body):
        if comment_free(node) == pair.value and node.type not in ("identifier", "comment"):
            return text_of(node)
    return pair.value


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with the first such pair of loops merged."""
    try:
        tree = KernelTree(kernel_file, kernel)
        loops = [loop for loop in reversed(list(find_loops(tree))) if not loop.serial]
        for at, first in enumerate(loops):
            for second in loops[at + 1 :]:
                pair = _pair(tree, first, second)
                if pair and _unsummed_between(tree, pair):
                    done = tree.edited(*_fused(tree, pair))
                    label = "maximum and sum in one pass"
                    yield Candidate(kernel.language, done.file, workload_file, label, "rewrite:online_softmax")
                    return
    except LookupError:
        return
