"""Use cheaper index arithmetic: unsigned instead of signed division, and 32-bit instead of 64-bit thread numbers.

A GPU has no instruction for integer division. The signed form costs a few instructions more than the unsigned one, the
64-bit form several times as many as the 32-bit one.
"""

from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, names
from kernel_lsp.refine.rewrites.reading.loops import find_loops, grid_stride
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_WIDE = {"size_t", "std::size_t", "long long", "unsigned long long", "int64_t", "uint64_t", "long", "unsigned long"}
_NUMBERS = {"threadIdx", "blockIdx", "blockDim", "gridDim"}


class _Types:
    """Types of a kernel's parameters and locals by name, and the values that cannot be negative."""

    def __init__(self, tree: KernelTree) -> None:
        self.tree = tree
        self.of = {p.name: p.type.removeprefix("const ").strip() for p in tree.kernel.parameters}
        self.of |= {name: text_of(field(node, "type")) for name, (node, _) in tree.declarations.items()}
        self.counters = {
            loop.variable
            for loop in find_loops(tree)
            if (value := tree.declarations.get(loop.variable, (None, None))[1]) and self.natural(value, set())
        }

    def natural(self, node: Node, counters: set[str]) -> bool:
        """Return True for a value computed from thread numbers, sizes and constants that cannot be negative."""
        node = bare(node)
        if node.type == "number_literal":
            return True
        if node.type == "field_expression":
            return text_of(node).split(".")[0] in _NUMBERS
        if node.type == "identifier":
            name = text_of(node)
            value = self.tree.values.get(name)
            return name.isupper() or name in counters or (value is not None and self.natural(value, counters))
        if node.type == "binary_expression":
            operator, left = text_of(field(node, "operator")), field(node, "left")
            if operator in ("+", "*"):
                return self.natural(left, counters) and self.natural(field(node, "right"), counters)
            return operator in ("/", "%") and self.natural(left, counters)
        return False


def _divisions(tree: KernelTree, types: _Types) -> Iterator[Node]:
    """Yield signed 32-bit `a / b` and `a % b` with a natural `a` and a parameter `b`, which as a size is positive."""
    parameters = {p.name for p in tree.kernel.parameters}
    for node in walk(tree.body):
        if node.type != "binary_expression" or text_of(field(node, "operator")) not in ("/", "%"):
            continue
        left, right = field(node, "left"), field(node, "right")
        plain = right.type == "identifier" and text_of(right) in parameters and types.of[text_of(right)] == "int"
        signed = all(types.of.get(n) == "int" for n in names(left)) and names(left)
        if plain and signed and types.natural(left, types.counters):
            yield node


def _wide_numbers(tree: KernelTree, types: _Types) -> Iterator[Node]:
    """Yield types of 64-bit thread numbers that are bounded by an `int` and only index, divide or compare."""
    for name, (declaration, value) in tree.declarations.items():
        if types.of[name] not in _WIDE or value is None or name not in tree.values:
            continue
        if len(declaration.children_by_field_name("declarator")) > 1 or not grid_stride(tree.canonical(value)):
            continue
        bounded, plain = False, True
        for use in walk(tree.body):
            if use.type != "identifier" or text_of(use) != name or use.parent is None:
                continue
            parent = use.parent
            if parent.type in ("init_declarator", "subscript_argument_list"):
                continue
            operator = text_of(field(parent, "operator")) if parent.type == "binary_expression" else ""
            if operator in ("<", ">=") and field(parent, "left") == use:
                limit = text_of(field(parent, "right"))
                bounded |= types.of.get(limit) in ("int", "unsigned", "unsigned int")
            elif operator not in ("/", "%"):
                plain = False
        if bounded and plain:
            yield field(declaration, "type")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with both changes wherever they apply."""
    try:
        tree = KernelTree(kernel_file, kernel)
        types = _Types(tree)
        edits = [Edit(span_of(node), "unsigned") for node in _wide_numbers(tree, types)]
        for node in _divisions(tree, types):
            left, right = span_of(field(node, "left")), span_of(field(node, "right"))
            edits += [
                Edit(Span(left.start, left.start), "static_cast<int>(static_cast<unsigned>("),
                Edit(Span(left.end, left.end), ")"),
                Edit(Span(right.start, right.start), "static_cast<unsigned>("),
                Edit(Span(right.end, right.end), "))"),
            ]
    except LookupError:
        return
    if edits:
        done = tree.edited(*edits)
        yield Candidate(kernel.language, done.file, workload_file, "cheaper divisions", "rewrite:strength_reduce")
