"""Warp shuffles in place of a tree reduction in shared memory: three barriers instead of one for each halving.

Recognised is the textbook loop `for (s = blockDim.x / 2; s > 0; s >>= 1) { if (t < s) a[t] += a[t + s]; barrier }`,
and the one that begins with neighbours, `for (s = 1; s < blockDim.x; s *= 2) { if (t % (2 * s) == 0) ... }`, where `t`
may be the number in the grid, or with `i = 2 * s * t` in place of `t`, for sums, maxima and minima over one or several
arrays. As before, `a[0]` holds the result and every thread has passed a
barrier; the other elements, where the tree leaves partial results, must not be read before they are written again.
The tree only works for powers of two, so the block is whole warps (blocks of less than a warp are not supported).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, comment_free, indent_at
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, text_of, walk

_HALVES = re.compile(r"(?P<s>\w+)(>>=1|/=2|=(?P=s)/2|=(?P=s)>>1)")
_DOUBLES = re.compile(r"(?P<s>\w+)(<<=1|\*=2|\+=(?P=s)|=(?P=s)\*2|=2\*(?P=s)|=(?P=s)<<1)")
_START = re.compile(r"(?P<size>blockDim\.x|\w+)(/2|>>1)")
_NUMBER = re.compile(r"(?:const)?(?:int|unsigned|unsignedint|size_t)(?P<i>\w+)=(?P<value>.*);")
_IN_GRID = ("blockIdx.x*blockDim.x+threadIdx.x", "blockDim.x*blockIdx.x+threadIdx.x")
"""The same in all blocks where their size is a multiple of what it is divided by: of a power of two of threads."""
_COMBINE = {"+": "{0} + {1}", "fmaxf": "fmaxf({0}, {1})", "fminf": "fminf({0}, {1})"} | {
    name: f"{name}({{0}}, {{1}})" for name in ("max", "min", "fmax", "fmin", "std::max", "std::min")
}


@dataclass(frozen=True, slots=True)
class _Step:
    """`array[t] op= array[t + s]`."""

    array: str
    element: str
    operation: str

    def combined(self, left: str, right: str) -> str:
        return _COMBINE[self.operation].format(left, right)


def _shared_element(tree: KernelTree, array: str) -> str | None:
    for node in walk(tree.root):
        if node.type == "declaration" and "__shared__" in text_of(node):
            declarators = node.children_by_field_name("declarator")
            if any(d.type == "array_declarator" and text_of(field(d, "declarator")) == array for d in declarators):
                return text_of(field(node, "type"))
    return None


def _step(tree: KernelTree, statement: str, own: str, distance: str) -> _Step | None:
    """Return the step that a statement, given without white space, makes; None if it makes none.

    Args:
        tree: the kernel.
        statement: the statement.
        own: a pattern of the index of the thread's own element.
        distance: name of the distance to the other element.
    """
    mine = rf"(?P<a>\w+)\[{own}\]"
    other = rf"(?P=a)\[(?:{own}\+{distance}|{distance}\+{own})\]"
    again = rf"(?P=a)\[{own}\]"
    operation = "+"
    match = re.fullmatch(rf"{mine}(?:\+={other}|={again}\+{other}|={other}\+{again});", statement)
    if match is None:
        match = re.fullmatch(rf"{mine}=(?P<f>[\w:]+)\((?:{again},{other}|{other},{again})\);", statement)
        operation = match["f"] if match else ""
    element = _shared_element(tree, match["a"]) if match else None
    if match is None or element is None or operation not in _COMBINE:
        return None
    return _Step(match["a"], element, operation)


def _tree_loop(tree: KernelTree, loop: Node) -> tuple[str, list[_Step]] | None:
    """Return the thread's name and the steps of a tree reduction loop; None for other loops."""
    initializer, condition, update = (field(loop, name) for name in ("initializer", "condition", "update"))
    declarators = initializer.children_by_field_name("declarator")
    if initializer.type != "declaration" or len(declarators) != 1 or declarators[0].type != "init_declarator":
        return None
    distance = text_of(field(declarators[0], "declarator"))
    halves = _halves(tree, distance, declarators[0], condition, update)
    if halves is None:
        return None
    body = [n for n in field(loop, "body").named_children if n.type != "comment"]
    numbers = [n for n in body if n.type == "declaration"]
    body = sorted(
        (n for n in body if n not in numbers), key=lambda n: n.type != "if_statement"
    )  # a barrier may be first
    if len(body) != 2 or comment_free(body[1]) != "__syncthreads();" or body[0].type != "if_statement":
        return None
    if body[0].child_by_field_name("alternative"):
        return None
    guard = bare(field(body[0], "condition").named_children[0])
    found = _own(tree, numbers, guard, distance, halves)
    if found is None:
        return None
    thread, own = found
    consequence = field(body[0], "consequence")
    statements = consequence.named_children if consequence.type == "compound_statement" else [consequence]
    made = [_step(tree, comment_free(n), own, distance) for n in statements if n.type != "comment"]
    steps = [step for step in made if step is not None]
    return (thread, steps) if steps and len(steps) == len(made) else None


def _thread_names(tree: KernelTree) -> list[str]:
    """Return what a thread's number in its block is called."""
    return [*(n for n, value in tree.values.items() if tree.canonical(value) == "threadIdx.x"), "threadIdx.x"]


def _own(tree: KernelTree, numbers: list[Node], guard: Node, distance: str, halves: bool) -> tuple[str, str] | None:
    """Return the thread's number, and a pattern of the index of its own element, of a guard; None for other guards."""
    threads = _thread_names(tree)
    if numbers:  # `i = 2 * s * t`
        made = _NUMBER.fullmatch(comment_free(numbers[0]))
        below = guard.type == "binary_expression" and text_of(field(guard, "operator")) == "<"
        if halves or len(numbers) > 1 or made is None or not below or text_of(field(guard, "left")) != made["i"]:
            return None
        doubled = sorted(made["value"].split("*")) in [sorted(["2", distance, one]) for one in threads]
        every = tree.canonical(field(guard, "right")) == "blockDim.x"
        return ("threadIdx.x", made["i"]) if doubled and every else None
    thread = _thread_below(guard, distance) if halves else _thread_in_step(guard, distance)
    known = tree.canonical(thread) if thread is not None else ""
    if thread is None or (known != "threadIdx.x" and (halves or re.sub(r"[\s()]", "", known) not in _IN_GRID)):
        return None
    return text_of(thread) if known == "threadIdx.x" else "threadIdx.x", f"(?:{'|'.join(map(re.escape, threads))})"


def _halves(tree: KernelTree, distance: str, start: Node, condition: Node, update: Node) -> bool | None:
    """Return True if a loop halves the distance down to 1, False if it doubles it from 1 on; None for other loops."""
    first, test = comment_free(bare(field(start, "value"))), comment_free(condition)
    halves, doubles = (pattern.fullmatch(comment_free(update)) for pattern in (_HALVES, _DOUBLES))
    if halves and halves["s"] == distance and _START.fullmatch(first):
        return True if test in (f"{distance}>0", f"{distance}>=1", f"{distance}!=0", distance) else None
    if doubles and doubles["s"] == distance and first == "1" and condition.type == "binary_expression":
        below = text_of(field(condition, "operator")) == "<" and text_of(field(condition, "left")) == distance
        return False if below and tree.canonical(field(condition, "right")) == "blockDim.x" else None
    return None


def _thread_below(guard: Node, distance: str) -> Node | None:
    """Return the thread's number of `t < s`."""
    if guard.type != "binary_expression" or comment_free(guard).split("<")[1:] != [distance]:
        return None
    return field(guard, "left")


def _thread_in_step(guard: Node, distance: str) -> Node | None:
    """Return the thread's number of `t % (2 * s) == 0`."""
    if guard.type != "binary_expression" or text_of(field(guard, "operator")) != "==":
        return None
    left = bare(field(guard, "left"))
    if left.type != "binary_expression" or text_of(field(guard, "right")) != "0":
        return None
    by = (text_of(field(left, "operator")), comment_free(bare(field(left, "right"))))
    steps = [("%", f"2*{distance}"), ("%", f"{distance}*2"), ("&", f"2*{distance}-1"), ("&", f"{distance}*2-1")]
    return field(left, "left") if by in steps else None


def _own_value(tree: KernelTree, loop: Node, thread: str, steps: list[_Step]) -> tuple[int, str | None]:
    """Return where to begin, and the value just stored to the only array's own element, if that comes right before.

    With `a[t] = value; __syncthreads();` before the loop the value need not go through shared memory at all. The
    barrier then follows the first shuffles, so that other threads can finish reading earlier contents.
    """
    barrier = loop.prev_named_sibling
    if barrier is not None and barrier.type == "preproc_call":  # an unroll pragma
        return barrier.start_byte, None
    store = barrier.prev_named_sibling if barrier is not None else None
    if store is None or barrier is None or len(steps) != 1 or comment_free(barrier) != "__syncthreads();":
        return loop.start_byte, None
    inner = store.named_children[0] if store.type == "expression_statement" and store.named_children else None
    if inner is None or inner.type != "assignment_expression" or text_of(field(inner, "operator")) != "=":
        return loop.start_byte, None
    if comment_free(field(inner, "left")) not in [f"{steps[0].array}[{one}]" for one in _thread_names(tree)]:
        return loop.start_byte, None
    return store.start_byte, text_of(field(inner, "right"))


def _reduction(tree: KernelTree, loop: Node, thread: str, steps: list[_Step]) -> Edit:
    start, value = _own_value(tree, loop, thread, steps)
    pad = indent_at(tree.file.text, start)
    names = {step: tree.fresh(f"{step.array}_value") for step in steps}
    warps, offset = tree.fresh("warps"), tree.fresh("offset")

    def shuffles(by: str) -> list[str]:
        lines = [f"{by}for (int {offset} = 16; {offset} > 0; {offset} >>= 1) {{"]
        for step in steps:
            other = f"__shfl_xor_sync(0xffffffffu, {names[step]}, {offset})"
            lines.append(f"{by}    {names[step]} = {step.combined(names[step], other)};")
        return [*lines, f"{by}}}"]

    lines = [f"    {s.element} {names[s]} = {value or f'{s.array}[{thread}]'};" for s in steps]
    lines += [*shuffles("    "), "    __syncthreads();", f"    if ({thread} % 32 == 0) {{"]
    lines += [f"        {step.array}[{thread} / 32] = {names[step]};" for step in steps]
    lines += ["    }", "    __syncthreads();", f"    if ({thread} < 32) {{"]
    lines += [f"        const int {warps} = blockDim.x / 32;"]
    for step in steps:
        idle = "0" if step.operation == "+" else f"{step.array}[0]"
        lines.append(f"        {names[step]} = {thread} < {warps} ? {step.array}[{thread}] : {step.element}({idle});")
    lines += [*shuffles("        "), f"        if ({thread} == 0) {{"]
    lines += [f"            {step.array}[0] = {names[step]};" for step in steps]
    lines += ["        }", "    }", "    __syncthreads();", "}"]
    return Edit(Span(start, loop.end_byte), f"\n{pad}".join(["{", *lines]))


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with every tree reduction done by shuffles."""
    try:
        tree = KernelTree(kernel_file, kernel)
        loops = [n for n in walk(tree.body) if n.type == "for_statement"]
        found = [(loop, *match) for loop in loops if (match := _tree_loop(tree, loop))]
    except LookupError:
        return
    if found:
        done = tree.edited(*(_reduction(tree, *item) for item in found))
        yield Candidate(kernel.language, done.file, workload_file, "warp shuffles", "rewrite:warp_shuffle")
