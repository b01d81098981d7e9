"""Process several elements per thread and step, with all loads issued before the first use."""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.element_loop import as_grid_stride
from kernel_lsp.refine.rewrites.reading.accesses import AccessGroup, lane_groups
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at, without_trailing_blanks
from kernel_lsp.refine.rewrites.reading.loops import IndexLoop, find_loops
from kernel_lsp.refine.rewrites.writing.launches import fewer_blocks
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import text_of

_ELEMENTS = (2, 4, 8)


def _loads(tree: KernelTree, loop: IndexLoop) -> list[AccessGroup]:
    """Return the groups that are only read, from arrays that the loop never writes."""
    groups = lane_groups(tree, loop) or []
    stored = {tree.base(g.array) for g in groups if g.written}
    return [g for g in groups if g.read and tree.base(g.array) not in stored]


def _loops(tree: KernelTree) -> list[tuple[IndexLoop, list[AccessGroup]]]:
    """Return the loops to unroll, inner ones first, with the groups that they load."""
    found: list[tuple[IndexLoop, list[AccessGroup]]] = []
    for loop in find_loops(tree):
        inner = any(loop.span.holds(other.span) for other, _ in found)
        if not (inner or loop.serial) and (groups := _loads(tree, loop)):
            found.append((loop, groups))
    return found


def _unrolled(tree: KernelTree, loop: IndexLoop, groups: list[AccessGroup], count: int) -> Edit:
    name = loop.variable
    first, step, lane = (tree.fresh(f"{name}_{word}") for word in ("first", "step", "lane"))
    values: dict[Span, str] = {}
    loads: list[str] = []
    for number, group in enumerate(groups):
        suffix = "".join(f"_{number}" for other in groups[:number] if other.array == group.array)[:2]
        buffer = tree.fresh(f"{group.array}_values{suffix}")
        at = f"{group.offset} + {first}" if group.offset else first
        loads.append(f"        {group.element} {buffer}[{count}];")
        loads += ["#pragma unroll", f"        for (int {lane} = 0; {lane} < {count}; ++{lane})"]
        loads.append(f"            {buffer}[{lane}] = {group.array}[{at} + {lane} * {step}];")
        values |= {Span(n.start_byte, n.end_byte): f"{buffer}[{lane}]" for n in group.nodes}
    origin, block = loop.body.start_byte, loop.body.type == "compound_statement"
    edits = [Edit(Span(s.start - origin, s.end - origin), text) for s, text in values.items()]
    old, new = text_of(loop.body), apply_edits(text_of(loop.body), edits)
    body = (new[1:-1].strip() if block else new).replace("\n", "\n        ")
    tail = old.replace("\n", "\n    ")
    lines = [
        "{",
        f"    const {loop.type} {step} = {loop.stride};",
        f"    {loop.type} {first} = {loop.start};",
        f"    for (; {first} + {count - 1} * {step} < {loop.limit}; {first} += {count} * {step}) {{",
        *loads,
        "#pragma unroll",
        f"        for (int {lane} = 0; {lane} < {count}; ++{lane}) {{",
        f"            const {loop.type} {name} = {first} + {lane} * {step};",
        f"            {body}",
        "        }",
        "    }",
        f"    for ({loop.type} {name} = {first}; {name} < {loop.limit}; {name} += {step}) {tail}",
        "}",
    ]
    pad = indent_at(tree.file.text, loop.node.start_byte)
    text = "\n".join(line if line.startswith(("#", "{")) else pad + line for line in lines)
    return Edit(loop.span, without_trailing_blanks(text))


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 2, 4 and 8 elements a step; a one-element kernel also gets a smaller grid."""
    try:
        tree = KernelTree(kernel_file, kernel)
        looped = as_grid_stride(tree)
        loops = _loops(looped) if looped else []
        if not any(loop.over_grid for loop, _ in loops):
            looped, loops = None, _loops(tree)
    except LookupError:
        return
    if not loops:
        return
    source = looped or tree
    for count in _ELEMENTS:
        done = source.edited(*(_unrolled(source, loop, groups, count) for loop, groups in loops))
        files = fewer_blocks(done, workload_file, count) if looped else (done.file, workload_file)
        if files:
            yield Candidate(kernel.language, *files, f"{count} elements per thread", "rewrite:multi_element")
