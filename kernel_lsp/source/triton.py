"""The kernels of a Triton file, and where the file launches them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import parse_python, python_grammar
from kernel_lsp.source.kernel import Kernel, Language, Parameter
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import imported_names, span_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node, Query

_QUERY = """
(import_statement) @import
(import_from_statement) @import
(decorated_definition definition: (function_definition)) @decorated
(call function: (subscript)) @launch
"""
_JIT = frozenset(("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit"))
_AUTOTUNE = frozenset(("triton.autotune", "triton.runtime.autotune", "triton.runtime.autotuner.autotune"))
_DOTTED = re.compile(r"[\w.]+")


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A launch `kernel[grid](arguments)` as it stands in a file.

    Attributes:
        kernel: last part of the name before the brackets (`add` for `self.ops.add[grid](x)`).
        span: the whole call.
        grid: what stands between the brackets.
        arguments: the parentheses and what is between them.
    """

    kernel: str
    span: Span
    grid: Span
    arguments: Span


@dataclass(frozen=True, slots=True)
class _Function:
    """A jit-decorated function and the names it calls."""

    kernel: Kernel
    calls: frozenset[str]


def find_triton_kernels(text: str, path: Path) -> tuple[Kernel, ...]:
    """The `@triton.jit` functions of `text` that are kernels, in order.

    Imports are followed under whatever name. A jit function that another one calls and that the file never launches as
    `f[grid](...)` is a device function, not a kernel.

    Args:
        text: the Python source; it need not be complete.
        path: put into the records; the file is not read.
    """
    if "triton" not in text:
        return ()
    data = text.encode()
    found = _captures(data)
    names = {"triton": "triton", "tl": "triton.language"} | imported_names(found.get("import", []))
    functions = [f for node in found.get("decorated", []) if (f := _function(data, node, names, path))]
    launched = {site.kernel for site in _launches(found.get("launch", []))}
    called = {name for f in functions for name in f.calls - {f.kernel.name}}
    return tuple(f.kernel for f in functions if f.kernel.name in launched or f.kernel.name not in called)


def find_launches(text: str) -> tuple[LaunchSite, ...]:
    """Every call of the form `name[...](...)` in Python source, in order; whether `name` is a kernel is not asked."""
    return _launches(_captures(text.encode()).get("launch", []))


@cache
def _query() -> "Query":
    from tree_sitter import Query

    return Query(python_grammar(), _QUERY)


def _captures(data: bytes) -> "dict[str, list[Node]]":
    """What the query finds, by capture, each in file order."""
    from tree_sitter import QueryCursor

    found = QueryCursor(_query()).captures(parse_python(data).root_node)
    return {name: sorted(nodes, key=lambda node: node.start_byte) for name, nodes in found.items()}


def _function(data: bytes, node: "Node", names: dict[str, str], path: Path) -> _Function | None:
    definition = node.child_by_field_name("definition")
    if definition is None:
        return None
    decorators = {_resolved(text_of(d)[1:], names) for d in node.children if d.type == "decorator"}
    name, body = definition.child_by_field_name("name"), definition.child_by_field_name("body")
    parameters = definition.child_by_field_name("parameters")
    if not decorators & _JIT or name is None or body is None or parameters is None:
        return None
    kernel = Kernel(
        name=text_of(name),
        language=Language.TRITON,
        path=path,
        span=span_of(node),
        name_span=span_of(name),
        body=span_of(body),
        parameters=tuple(p for node in parameters.named_children if (p := _parameter(node, names))),
        autotuned=bool(decorators & _AUTOTUNE),
    )
    return _Function(kernel, frozenset(re.findall(r"\b(\w+)\s*\(", data[body.start_byte : body.end_byte].decode())))


def _resolved(expression: str, names: dict[str, str]) -> str:
    """Dotted name of a decorator or annotation, its call's arguments left out."""
    match = _DOTTED.search(expression)
    first, _, rest = (match[0] if match else "").partition(".")
    return ".".join(filter(None, (names.get(first, first), rest)))


def _parameter(node: "Node", names: dict[str, str]) -> Parameter | None:
    name = node if node.type == "identifier" else node.child_by_field_name("name")
    if name is None and node.type == "typed_parameter":
        name = node.named_children[0]
    if name is None or name.type != "identifier":
        return None
    annotation = node.child_by_field_name("type")
    kind = text_of(annotation) if annotation else ""
    constexpr = _resolved(kind, names).rsplit(".", 1)[-1] == "constexpr"
    return Parameter(text_of(name), kind, constexpr)


def _launches(calls: "list[Node]") -> tuple[LaunchSite, ...]:
    found: list[LaunchSite] = []
    for call in calls:
        subscript, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        value = subscript.child_by_field_name("value") if subscript else None
        if subscript is None or arguments is None or value is None:
            continue
        opening = next((c for c in subscript.children if c.type == "["), subscript)
        grid = Span(opening.end_byte, subscript.children[-1].start_byte)
        found.append(LaunchSite(text_of(value).rsplit(".", 1)[-1].strip(), span_of(call), grid, span_of(arguments)))
    return tuple(found)
