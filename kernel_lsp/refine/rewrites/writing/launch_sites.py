"""Read and change the launches of a kernel as a whole: grid, block and arguments, in host code and in a workload."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, floordiv, mul, sub

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare
from kernel_lsp.refine.rewrites.reading.bindings import NAMES, bound_value, function_of, is_bound, launched_name
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.kernel import Parameter
from kernel_lsp.source.text import Edit, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_OPERATORS = {"+": add, "-": sub, "*": mul, "/": floordiv, "//": floordiv}
_LISTS = ("tuple", "expression_list", "argument_list", "parameter_list", "initializer_list")
_GIVES = {
    "declaration": "declarator",
    "init_declarator": "declarator",
    "assignment_expression": "left",
    "assignment": "left",
    "augmented_assignment": "left",
}
"""Fields with the names of what nodes of C++ and Python give a value."""
_DEPTH = 8  # of constants that stand for others


@dataclass(frozen=True)
class LaunchSite:
    """One launch of a kernel.

    Attributes:
        python: it stands in a workload, not in host code.
        grid: node of the grid, where it is used.
        block: node of the block, where it is used.
        arguments: texts of the arguments, by the parameter's name.
        bound: nodes of the values of `grid` and `block` where they are names bound once; else themselves.
        only: names that are used nowhere but here, whose values may be changed where they are bound.
        constants: values of names that the file gives a whole number.
    """

    python: bool
    grid: Node
    block: Node
    arguments: Mapping[str, str]
    bound: Mapping[int, Node]
    only: frozenset[str]
    constants: Mapping[str, Node]

    def sizes(self, node: Node) -> list[Node]:
        """Return the components of a grid or block, x first."""
        value = self.bound[node.id]
        if value.type == "call_expression" and text_of(field(value, "function")) == "dim3":
            value = field(value, "arguments")
        parts = value.named_children if value.type in _LISTS else [value]
        # `dim3 block(SIZE);` reads like the declaration of a function whose parameter has the type `SIZE`
        named = (n.type == "parameter_declaration" and n.named_child_count == 1 for n in parts)
        return [n.named_children[0] if alone else n for n, alone in zip(parts, named, strict=True)]

    def threads(self) -> int | None:
        """Return the number of threads of a block along x; None where it is no number, or the block is not flat."""
        first, *others = [self.number(n) for n in self.sizes(self.block)]
        return first if all(n == 1 for n in others) else None

    def shape(self) -> tuple[int | None, ...]:
        """Return the number of a block's threads along each axis that it names; None for one that is no number."""
        return tuple(self.number(node) for node in self.sizes(self.block))

    def is_single(self, node: Node) -> bool:
        """Return True for a grid or block of one."""
        return all(self.number(n) == 1 for n in self.sizes(node))

    @property
    def flat(self) -> bool:
        """Return True if the block has one axis, and 1 along any other that is named."""
        return all(self.number(n) == 1 for n in self.sizes(self.block)[1:])

    @property
    def along_x_alone(self) -> bool:
        """Return True if grid and block have one axis, and 1 along any other that is named."""
        return self.flat and all(self.number(n) == 1 for n in self.sizes(self.grid)[1:])

    @property
    def call(self) -> Node:
        """Return the call, with grid and block.

        Raises:
            LookupError: it is no statement of its own.
        """
        call = self.grid.parent.parent if self.grid.parent is not None else None
        statement = call.parent if call is not None else None
        if call is None or statement is None or statement.type != "expression_statement":
            raise LookupError("launch")
        if statement.parent is None or statement.parent.type not in ("block", "compound_statement"):
            raise LookupError("launch")
        return call

    def launched(self, kernel: str, other: str, grid: str, block: str, names: Sequence[str]) -> str:
        """Return a launch of another kernel with some of the arguments, written as this one of `kernel`."""
        given, head = ", ".join(self.arguments[name] for name in names), self.call.children[0]
        more = self.grid.parent.named_children[2 + self.python :] if self.grid.parent is not None else []
        sizes = ", ".join([grid, block, *map(text_of, more)])  # with shared memory and a stream
        if not self.python:
            return f"{other}<<<{sizes}>>>({given})"
        before, _, after = text_of(field(head, "value")).rpartition(kernel)
        return f"{before}{other}{after}[{sizes}]({given})"

    def number(self, node: Node, depth: int = _DEPTH) -> int | None:
        """Return a size that is a number, made of numbers, or a name for one; None for any other."""
        value = bare(self.bound.get(node.id, node))
        if value.type in NAMES and depth and text_of(value) in self.constants:
            return self.number(self.constants[text_of(value)], depth - 1)
        if (digits := text_of(value).rstrip("uUlL")).isdigit():
            return int(digits)
        if value.type not in ("binary_operator", "binary_expression"):
            return None
        left, right = (self.number(field(value, side), depth) for side in ("left", "right"))
        operator = _OPERATORS.get(text_of(field(value, "operator")))
        if left is None or right is None or operator is None or (operator is floordiv and not right):
            return None
        return operator(left, right)

    def spelled(self, amount: Polynomial) -> str | None:
        """Return a polynomial of parameters in terms of this launch's arguments; None if it has other unknowns."""
        text = ""
        for unknowns, n in sorted(sorted(amount.terms.items(), reverse=True), key=lambda term: term[1] < 0):
            given = [self._given(name) for name in unknowns]
            if any(one is None for one in given) or (n < 0 and not text):
                return None
            factors = [closed(one) for one in given if one is not None and one != "1"]
            part = " * ".join([*([str(abs(n))] if abs(n) != 1 or not factors else []), *factors])
            text += (f" {'-' if n < 0 else '+'} " if text else "") + part
        return text or None

    def _given(self, name: str) -> str | None:
        """Return the argument for a parameter, or the member of one in host code; None for any other name."""
        name, dot, member = name.partition(".")
        argument = self.arguments.get(name)
        if argument is None or not dot:
            return argument
        return None if self.python else f"{closed(argument)}.{member}"

    def ceil_div(self, amount: str, by: int) -> str:
        """Return the quotient rounded up, as text."""
        if by == 1:
            return amount
        if amount.isdigit():
            return str(-(-int(amount) // by))
        return f"-(-{closed(amount)} // {by})" if self.python else f"({amount} + {by - 1}) / {by}"

    def with_grid(self, x: str, *others: str) -> Edit:
        """Return the edit that sets the grid's first components."""
        return self._with(self.grid, [x, *others])

    def with_block(self, x: str, *others: str) -> Edit:
        """Return the edit that sets the block's first components."""
        return self._with(self.block, [x, *others])

    def _with(self, node: Node, texts: list[str]) -> Edit:
        old = self.bound[node.id]
        if old is not node and (text_of(node) not in self.only or _changes_between(old, node, texts)):
            old = node
        kept = [text_of(n) for n in self.sizes(node)[len(texts) :]]
        joined = ", ".join([*texts, *kept])
        if old.type in _LISTS:
            comma = "," if len(texts) + len(kept) == 1 and self.python else ""
            return Edit(span_of(old), f"{{{joined}}}" if old.type == "initializer_list" else f"({joined}{comma})")
        if len(texts) + len(kept) == 1:
            return Edit(span_of(old), joined)
        return Edit(span_of(old), f"({joined})" if self.python else f"dim3({joined})")


def _changes_between(value: Node, use: Node, texts: Sequence[str]) -> bool:
    """Return True if what texts name is declared or changed behind the value of a size and ahead of its use."""
    named = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
    for node in walk(function_of(use) or use):
        key = _GIVES.get(node.type)
        target = node.child_by_field_name(key) if key is not None else None
        between = value.end_byte <= node.start_byte < use.start_byte
        if between and target is not None and named & {text_of(n) for n in walk(target) if n.type == "identifier"}:
            return True
    return False


def find_launches(tree: KernelTree, workload: SourceFile | None) -> list[LaunchSite] | None:
    """Return all launches of the kernel; None when there is none, or one is not understood."""
    name = tree.kernel.name.split("::")[-1]
    try:
        sites = list(_in_host_code(tree, name, tree.kernel.parameters))
        if workload:
            sites += _in_workload(parse_python(workload.text.encode()).root_node, name, tree.kernel.parameters)
    except LookupError:
        return None
    return sites or None


def relaunched(
    tree: KernelTree,
    workload: SourceFile | None,
    sites: list[LaunchSite],
    edits: list[Edit],
    change: Callable[[LaunchSite], list[Edit]],
) -> tuple[SourceFile, SourceFile | None]:
    """Return kernel file and workload with `edits` of the kernel's file and the changes of its launches."""
    ours = [edit for site in sites if not site.python for edit in change(site)]
    theirs = [edit for site in sites if site.python for edit in change(site)]
    file = SourceFile(tree.file.path, apply_edits(tree.file.text, {*edits, *ours}))
    return file, SourceFile(workload.path, apply_edits(workload.text, set(theirs))) if workload else None


def _site(
    root: Node,
    python: bool,
    grid: Node,
    block: Node,
    given: list[str],
    names: tuple[Parameter, ...],
    constants: Mapping[str, Node],
) -> LaunchSite:
    scope = function_of(grid) or root
    bound = {node.id: bound_value(scope, node) for node in (grid, block)}
    for value in [*bound.values()]:
        for part in walk(value):
            if part.type in NAMES:
                bound.setdefault(part.id, bound_value(scope, part))
    counts: dict[str, int] = {}
    for node in walk(root):
        if node.type == "identifier":
            counts[text_of(node)] = counts.get(text_of(node), 0) + 1
    only = frozenset(name for name, count in counts.items() if count == 2)
    arguments = {p.name: text for p, text in zip(names, given, strict=True)} if len(given) == len(names) else {}
    known = {name: value for name, value in constants.items() if not is_bound(scope, name)}
    return LaunchSite(python, grid, block, arguments, bound, only, known)


def _in_host_code(tree: KernelTree, kernel: str, names: tuple[Parameter, ...]) -> Iterator[LaunchSite]:
    """Yield the sites `kernel<<<grid, block, ...>>>(...)`."""
    for node in walk(tree.root):
        if node.type != "call_expression" or text_of(field(node, "function")).split("<")[0].split("::")[-1] != kernel:
            continue
        configuration = next((c for c in node.children if c.type == "kernel_call_syntax"), None)
        if configuration is not None and configuration.named_child_count >= 2:
            grid, block = configuration.named_children[:2]
            given = [text_of(n) for n in field(node, "arguments").named_children]
            yield _site(tree.root, False, grid, block, given, names, tree.constants)


def _in_workload(root: Node, kernel: str, names: tuple[Parameter, ...]) -> Iterator[LaunchSite]:
    """Yield the sites `module.kernel[grid, block, ...](...)`.

    Raises:
        LookupError: the kernel is launched in another way.
    """
    for node in walk(root):
        if node.type == "subscript" and launched_name(field(node, "value")) == kernel:
            call = node.parent
            sizes = node.children_by_field_name("subscript")
            if call is None or call.type != "call" or len(sizes) < 2:
                raise LookupError("launch")
            given = [text_of(n) for n in _unpacked(function_of(call) or root, field(call, "arguments"))]
            yield _site(root, True, sizes[0], sizes[1], given, names, {})


def _unpacked(scope: Node, arguments: Node) -> Iterator[Node]:
    """Yield the arguments of a call, with those of a tuple that has a name: `*arguments`."""
    for node in arguments.named_children:
        value = bound_value(scope, node.named_children[0]) if node.type == "list_splat" else node
        if value.type in ("tuple", "list") and value is not node:
            yield from value.named_children
        elif node.type != "comment":
            yield node
