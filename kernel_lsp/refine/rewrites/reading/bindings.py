"""Values that names stand for in host code and workloads: bound once, unpacked from a tuple, or looked up in a table.

A workload that launches several versions often holds their names and sizes in a table,
`name, grid = {1: ("sgemm", (8, 8)), 2: ...}[VERSION]`, of which a constant picks one entry.
"""

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import declared_names
from kernel_lsp.source.trees import field, text_of, walk

_DEPTH = 8  # of names that stand for others
_PATTERNS = ("pattern_list", "tuple_pattern")
_TUPLES = ("tuple", "expression_list")
_CONSTANTS = ("integer", "string", "number_literal")
NAMES = ("identifier", "type_identifier")
"""Names of values; the second where `dim3 block(SIZE);` reads like the declaration of a function."""


def bound_value(scope: Node, node: Node, depth: int = _DEPTH) -> Node:
    """Return the value of a name that a function, or else its file, gives a value once; any other node itself.

    An element of a table is returned as the node in the table where its key is a constant.
    """
    if depth and node.type in NAMES:
        name = text_of(node)
        values = [*_values(scope, name, depth), *(None for one in _parameters(scope) if one == name)]
        outer = scope.parent
        while not values and outer is not None:
            values, outer = _own_values(outer, name, depth), outer.parent
        value = values[0] if len(values) == 1 else None
        return node if value is None else _looked_up(scope, value, depth - 1)
    return _looked_up(scope, node, depth)


def is_bound(scope: Node, name: str) -> bool:
    """Return True if a function has a variable or parameter of that name."""
    return name in _parameters(scope) or bool(_values(scope, name, _DEPTH))


def is_local(function: Node, name: str) -> bool:
    """Return True if a function of C++ declares a variable of that name in its body."""
    declared = (n for n in walk(field(function, "body")) if n.type == "declaration")
    return any(name in declared_names(n) for n in declared)


def _parameters(function: Node) -> list[str]:
    """Return the names of a function's parameters; of defaults and types, too."""
    head = function.child_by_field_name("declarator") or function
    while head.type == "pointer_declarator":
        head = field(head, "declarator")
    parameters = head.child_by_field_name("parameters")
    return [text_of(n) for n in walk(parameters) if n.type == "identifier"] if parameters is not None else []


def _values(scope: Node, name: str, depth: int) -> list[Node | None]:
    """Return what a name is bound to anywhere in a node; None for a value that is not known."""
    found: list[Node | None] = []
    for n in walk(scope):
        found += _binding(scope, n, name, depth)
    return found


def _own_values(scope: Node, name: str, depth: int) -> list[Node | None]:
    """Return what a file binds a name to in statements of its own, if no function says `global`."""
    if scope.type != "module" or any(n.type == "global_statement" for n in walk(scope)):
        return []
    statements = [n for n in scope.named_children if n.type not in ("function_definition", "class_definition")]
    return [value for n in statements for value in _values(n, name, depth)]


def _binding(scope: Node, node: Node, name: str, depth: int) -> list[Node | None]:
    """Return the value that one statement gives to a name, if it gives it one."""
    if node.type == "init_declarator":
        return [node.child_by_field_name("value")] if text_of(field(node, "declarator")) == name else []
    if node.type == "function_declarator" and text_of(field(node, "declarator")) == name and _is_dim3(node):
        return [field(node, "parameters")]
    if node.type in ("for_statement", "augmented_assignment") and (left := node.child_by_field_name("left")):
        return [None] if name in {text_of(n) for n in walk(left) if n.type == "identifier"} else []
    if node.type not in ("assignment", "assignment_expression"):
        return []
    left, right = field(node, "left"), node.child_by_field_name("right")
    if text_of(left) == name:
        return [right]
    if left.type not in _PATTERNS or name not in {text_of(n) for n in walk(left) if n.type == "identifier"}:
        return []
    value = _looked_up(scope, right, depth - 1) if right is not None and depth else None
    at = next((i for i, n in enumerate(left.named_children) if text_of(n) == name), None)
    fits = value is not None and value.type in _TUPLES and value.named_child_count == left.named_child_count
    return [value.named_children[at] if fits and value is not None and at is not None else None]


def _is_dim3(node: Node) -> bool:
    """Return True for `dim3 grid(columns, rows);`, which reads like the declaration of a function."""
    outer = node.parent
    return outer is not None and outer.type == "declaration" and text_of(field(outer, "type")) == "dim3"


def _looked_up(scope: Node, node: Node, depth: int) -> Node:
    """Return the entry that `{key: value, ...}[constant]` means; any other node itself."""
    if node.type != "subscript" or field(node, "value").type != "dictionary" or not depth:
        return node
    key = bound_value(scope, field(node, "subscript"), depth - 1)
    if key.type not in _CONSTANTS:
        return node
    pairs = [n for n in field(node, "value").named_children if n.type == "pair"]
    found = [field(n, "value") for n in pairs if text_of(field(n, "key")) == text_of(key)]
    return found[0] if len(found) == 1 else node


def function_of(node: Node) -> Node | None:
    """Return the function around a node; None outside of all."""
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        parent = parent.parent
    return parent


def launched_name(node: Node) -> str | None:
    """Return the kernel's name in `module.kernel`, `module["kernel"]` or `module[name]`; None for anything else.

    A name in brackets is looked up: it must be bound to a text. Template arguments and namespaces are cut off a text,
    so that `"ops::scale<float>"` gives `scale`.
    """
    if node.type == "attribute":
        return text_of(field(node, "attribute"))
    if node.type != "subscript":
        return None
    name = field(node, "subscript")
    if name.type == "identifier" and (scope := function_of(node)) is not None:
        name = bound_value(scope, name)
    return text_of(name).strip("\"'").split("<")[0].split("::")[-1] if name.type == "string" else None
