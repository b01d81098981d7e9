"""Find products of shared tiles: kernels whose threads each combine a row of one tile with a column of another."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Indices
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    LOOPS,
    KernelTree,
    declared_identifier,
    function_names,
    names,
    written,
)
from kernel_lsp.refine.rewrites.reading.reductions import ZERO
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.source.trees import field, span_of, text_of, walk

Axes = frozenset[str]

NO_AXES: Axes = frozenset()
_BOTH: Axes = frozenset("xy")
_FOREIGN = re.compile(r"atomic|\basm\b|gridDim|wmma|mma_|cp_async|__pipeline|memcpy|cooperative_groups|cluster")
_LEAPS = {"return_statement", "goto_statement", "lambda_expression", "switch_statement", "labeled_statement"}
_OPAQUE = {"subscript_expression", "call_expression", "pointer_expression"}


@dataclass(frozen=True)
class TiledProduct:
    """A tiled product: which of the kernel's variables depend on which axis of the grid.

    Attributes:
        tree: the kernel.
        axes: the axes that a local or shared variable depends on, by name; not those that depend on none.
    """

    tree: KernelTree
    axes: Mapping[str, Axes]

    def of(self, node: Node) -> Axes:
        """Return the axes of the grid that a node depends on."""
        return _axes_of(node, self.axes)

    @cached_property
    def parts(self) -> list[Node]:
        """Return the largest statements to repeat as a whole, in order, without declarations."""
        return list(self._parts(self.tree.body))

    def _parts(self, node: Node) -> Iterator[Node]:
        for child in node.named_children:
            inner = child.type in (*LOOPS, "if_statement", "compound_statement", "else_clause")
            if inner and not any(self.of(head) for head in _heads(child)):
                yield from self._parts(child)
            elif child.type != "declaration" and (child.type.endswith("_statement") and self.of(child)):
                yield child

    @cached_property
    def declared(self) -> dict[str, tuple[Node, Node]]:
        """Return declaration and declarator of each dependent variable outside of all parts."""
        inside = [span_of(part) for part in self.parts]
        found: dict[str, tuple[Node, Node]] = {}
        for declaration, declarator, name in _declarators(self.tree.body):
            if name in self.axes and not any(part.holds(span_of(declaration)) for part in inside):
                found[name] = declaration, declarator
        return found

    @cached_property
    def recomputed(self) -> set[str]:
        """Return dependent variables that are arithmetic on fixed values, computed again where they are used."""
        moving = _changed(self.tree.body) - _loop_variables(self.tree.body)
        return {
            name
            for name in self.declared
            if (value := self.tree.values.get(name)) is not None
            and name not in moving
            and not any(n.type in _OPAQUE for n in walk(value))
            and not names(value) & moving
        }

    @cached_property
    def apart(self) -> set[str]:
        """Return shared arrays of one axis whose values a thread reads one by one, as `b[k][threadIdx.x]` along k.

        Where it reads `a[threadIdx.y][k]` the compiler loads neighbours at once.
        """
        arrays = shared_arrays(self.tree)
        loop = _product_loop(self, arrays)
        assert loop is not None, "it is a product"
        single = {name for name in arrays if len(self.axes.get(name, NO_AXES)) == 1}
        indices = Indices(Scopes(self.tree))
        variable = next((indices.scopes.of(n) for n in walk(field(loop, "update")) if n.type == "identifier"), None)
        near, partly = set[str](), set[str]()
        for use in walk(self.tree.body):
            if use.type != "identifier" or (name := text_of(use)) not in single or _declares(use):
                continue
            subscripts = subscripts_of(use)
            if len(subscripts) != text_of(arrays[name][1]).count("["):
                partly.add(name)
            elif span_of(loop).holds(span_of(use)):
                step = indices.of(field(subscripts[-1], "indices").named_children[0])
                by = step.factor(variable.symbol) if variable is not None else None
                near |= {name} if by is None or by.value == 1 else set()
        return single - near - partly

    def needed(self, nodes: list[Node]) -> list[str]:
        """Return the recomputed variables that the nodes use, in the order of their declarations."""
        reached: set[str] = set()
        todo = {name for node in nodes for name in names(node)} & self.recomputed
        while todo:
            reached |= todo
            todo = {n for name in todo for n in names(self.tree.values[name])} & self.recomputed - reached
        return [name for name in self.declared if name in reached]


def subscripts_of(name: Node) -> list[Node]:
    """Return the subscripted expressions that begin with a name, the shortest first."""
    found: list[Node] = []
    node = name
    while node.parent is not None and node.parent.type == "subscript_expression":
        if field(node.parent, "argument") != node:
            break
        node = node.parent
        found.append(node)
    return found


def _declares(name: Node) -> bool:
    return name.parent is not None and name.parent.type == "array_declarator"


def _axes_of(node: Node, axes: Mapping[str, Axes]) -> Axes:
    found: set[str] = set()
    for n in walk(node):
        if n.type == "identifier":
            found |= axes.get(text_of(n), NO_AXES)
        elif n.type == "field_expression" and text_of(n) in ("blockIdx.x", "blockIdx.y"):
            found.add(text_of(n)[-1])
    return frozenset(found)


def _heads(node: Node) -> list[Node]:
    """Return the nodes that decide if and how often a statement's body runs."""
    named = (node.child_by_field_name(name) for name in ("initializer", "condition", "update"))
    return [head for head in named if head is not None]


def _declarators(body: Node) -> Iterator[tuple[Node, Node, str]]:
    """Yield every declarator in the kernel with its declaration and the name that it declares."""
    for declaration in walk(body):
        for declarator in declaration.children_by_field_name("declarator") if declaration.type == "declaration" else ():
            yield declaration, declarator, text_of(declared_identifier(declarator))


def _base(target: Node) -> Node:
    """Return the variable that an assignment changes, as a whole or in part."""
    while target.type == "subscript_expression":
        target = field(target, "argument")
    return target


def _changed(body: Node) -> set[str]:
    return {text_of(_base(target)) for target in written(body)}


def _loop_variables(body: Node) -> set[str]:
    """Return variables of loops that change in the loop's head alone."""
    found: set[str] = set()
    for node in walk(body):
        head, update = node.child_by_field_name("initializer"), node.child_by_field_name("update")
        if node.type == "for_statement" and head is not None and update is not None:
            found |= _changed(update) - _changed(field(node, "body"))
    return found


def _dependences(tree: KernelTree) -> dict[str, Axes]:
    """Return the axes that each variable of the kernel depends on, through values, indices and conditions alike."""
    sources: list[tuple[str, Node]] = []
    for _, declarator, name in _declarators(tree.body):
        if (value := declarator.child_by_field_name("value")) is not None:
            sources.append((name, value))
    for node in walk(tree.body):
        if node.type in ("assignment_expression", "update_expression"):
            target = field(node, "left" if node.type == "assignment_expression" else "argument")
            over, outer = [node], node.parent
            while outer is not None and outer != tree.body:
                over += [head for head in _heads(outer) if head != node]
                outer = outer.parent
            sources += [(text_of(_base(target)), n) for n in over]
    local = {name for _, _, name in _declarators(tree.body)}
    axes: dict[str, Axes] = {}
    while True:
        before = dict(axes)
        for name, source in sources:
            if name in local and (found := _axes_of(source, axes)):
                axes[name] = axes.get(name, NO_AXES) | found
        if axes == before:
            return axes


def shared_arrays(tree: KernelTree) -> dict[str, tuple[Node, Node]]:
    """Return declaration and declarator of each static shared array."""
    return {
        name: (declaration, declarator)
        for declaration, declarator, name in _declarators(tree.body)
        if declarator.type == "array_declarator" and "__shared__" in text_of(declaration)
    }


def find_tiled_product(tree: KernelTree) -> TiledProduct | None:
    """Return the kernel as a tiled product; None if it is no product, or must not be spread over fewer blocks."""
    body = text_of(tree.body)
    if _FOREIGN.search(body) or "extern __shared__" in body or any(n.type in _LEAPS for n in walk(tree.body)):
        return None
    if any("blockIdx" in text_of(function) for function in _helpers(tree)):
        return None
    if any(text_of(user) not in ("blockIdx.x", "blockIdx.y", "blockIdx.z") for user in _users(tree, {"blockIdx"})):
        return None
    found = TiledProduct(tree, _dependences(tree))
    shared = shared_arrays(tree)
    return found if _product_loop(found, shared) is not None and _is_repeatable(found, shared) else None


def _helpers(tree: KernelTree) -> Iterator[Node]:
    """Yield macros and functions of the file that the kernel uses."""
    used = names(tree.body)
    for node in walk(tree.root):
        if node.type in ("preproc_def", "preproc_function_def"):
            defined = {text_of(field(node, "name"))}
        elif node.type == "function_definition" and not span_of(node).holds(tree.kernel.body):
            defined = function_names(node)
        else:
            continue
        if defined & used:
            yield node


def _users(tree: KernelTree, wanted: Collection[str]) -> Iterator[Node]:
    """Yield the parent nodes of these variables' uses."""
    for node in walk(tree.body):
        if node.type == "identifier" and text_of(node) in wanted and node.parent is not None:
            yield node.parent


def _product_loop(found: TiledProduct, shared: Collection[str]) -> Node | None:
    """Return the innermost loop that combines a shared array of the rows with one of the columns in one variable."""
    by_row, by_column = ({n for n in shared if found.axes.get(n, NO_AXES) == frozenset(axis)} for axis in "yx")
    for loop in walk(found.tree.body):
        if loop.type != "for_statement" or sum(n.type in LOOPS for n in walk(loop)) > 1:
            continue
        used, sums = names(loop), _changed(field(loop, "body")) - set(shared)
        if used & by_row and used & by_column and any(found.axes.get(n, NO_AXES) == _BOTH for n in sums):
            return loop
    return None


def _is_repeatable(found: TiledProduct, shared: Collection[str]) -> bool:
    """Return True if each statement that depends on the grid is free of barriers and checks its bounds."""
    tree = found.tree
    counts: dict[str, int] = {}
    for _, _, name in _declarators(tree.body):
        counts[name] = counts.get(name, 0) + 1
    if any(counts[name] != 1 for name in found.axes) or any(found.of(n) for n in _loop_heads(found)):
        return False
    for name, (declaration, declarator) in found.declared.items():
        if name in found.recomputed:
            continue
        value = declarator.child_by_field_name("value")
        if text_of(field(declaration, "type")) == "auto" or (is_list(value) and not _is_zeros(value)):
            return False
    if any(user.type not in ("subscript_expression", "array_declarator") for user in _users(tree, shared)):
        return False
    return all(not tree.collective(p) and not _leaves(p) and _is_guarded(found, p) for p in found.parts)


def is_list(value: Node | None) -> bool:
    """Return True for the first values of an array."""
    return value is not None and value.type == "initializer_list"


def _is_zeros(value: Node | None) -> bool:
    """Return True for a list of an array's first values that are all 0."""
    inner = [n for n in walk(value) if not n.named_children] if value is not None else []
    return all(n.type in ("initializer_list", "comment") or ZERO.fullmatch(text_of(n)) for n in inner if n.is_named)


def _leaves(part: Node) -> bool:
    """Return True for a statement that ends the turn of a loop around it, whose other statements would go on."""
    for node in walk(part):
        if node.type not in ("break_statement", "continue_statement"):
            continue
        while node.type not in LOOPS and node != part and node.parent is not None:
            node = node.parent
        if node.type not in LOOPS:
            return True
    return False


def _loop_heads(found: TiledProduct) -> Iterator[Node]:
    """Yield heads of the loops that contain barriers: all blocks must run them equally often."""
    for node in walk(found.tree.body):
        if node.type in LOOPS and found.tree.collective(node):
            yield from _heads(node)


def _is_guarded(found: TiledProduct, part: Node) -> bool:
    """Return True if a block past the edge, as the last of a smaller grid may be, touches no memory there."""
    checked: set[str] = set()
    for node in walk(part):
        if (condition := node.child_by_field_name("condition")) is not None:
            checked |= found.of(condition)
    touched: set[str] = set()
    for node in walk(part):
        indexed = node.type == "subscript_expression" and text_of(_base(node)) in found.tree.pointers
        if indexed or (node.type == "pointer_expression" and text_of(node).startswith("*")):
            touched |= found.of(node)
    return touched <= checked
