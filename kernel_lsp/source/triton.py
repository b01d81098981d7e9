"""Finds the kernels of a Triton file, and the file's launches of them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import parse_python, python_grammar
from kernel_lsp.source.kernel import Kernel, Language, Parameter
from kernel_lsp.source.python import python_ast_if_any
from kernel_lsp.source.trees import imported_names, span_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node, Query

_QUERY = """
(import_statement) @import
(import_from_statement) @import
(decorated_definition definition: (function_definition)) @decorated
(call function: (subscript)) @launch
(function_definition) @plain
(assignment left: (identifier) right: (call)) @assigned
"""
_GLUON = "triton.experimental.gluon"
_JIT = frozenset(
    ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit", f"{_GLUON}.jit", f"{_GLUON}._runtime.jit")
)
_AUTOTUNE = frozenset(("triton.autotune", "triton.runtime.autotune", "triton.runtime.autotuner.autotune"))
_DOTTED = re.compile(r"[\w.]+")
_MARKED = re.compile(r"^[ \t]*@(?:triton\.|gluon\.)?jit\b", re.MULTILINE)
_RETURNS = re.compile(r"^[ \t]*return[ \t]+(?!None\b)[^\s#]", re.MULTILINE)
_USED = re.compile(r"\b(\w+)\s*\(|(?<=[(,=])\s*(\w+)\s*(?=[,)])")


@dataclass(frozen=True, slots=True)
class _Function:
    """A jit-decorated function, the names that it calls or passes on, as to `tl.associative_scan`, and whether it
    returns a value.
    """

    kernel: Kernel
    uses: frozenset[str]
    returns: bool


def find_triton_kernels(text: str, path: Path) -> tuple[Kernel, ...]:
    """Return the `@triton.jit` and `@gluon.jit` functions of `text` that are kernels, in order.

    Imports are followed under whatever name. A jit function that another one calls or passes on, or that returns a
    value, and that the file never launches as `f[grid](...)`, is a device function, not a kernel.

    Args:
        text: the Python source; it need not be complete.
        path: put into the records; the file is not read.
    """
    if "triton" not in text:
        return ()
    functions, launched = _functions(text, path)
    used = {name for f in functions for name in f.uses - {f.kernel.name}}
    used |= {f.kernel.name for f in functions if f.returns}
    return tuple(f.kernel for f in functions if f.kernel.name in launched or f.kernel.name not in used)


def is_broken_triton(text: str) -> bool:
    """Return True if a text marks functions as Triton's, and Python cannot parse it."""
    return "triton" in text and _MARKED.search(text) is not None and python_ast_if_any(text) is None


def _functions(text: str, path: Path) -> tuple[list[_Function], set[str]]:
    """Return the jit functions of a text, and the names of what it launches."""
    data = text.encode()
    found = _captures(data)
    names = {"triton": "triton", "tl": "triton.language"} | imported_names(found.get("import", []))
    applied = _applied(found.get("assigned", []), names)
    functions = [f for node in found.get("plain", []) if (f := _function(data, node, names, path, applied))]
    return functions, set(_launched(found.get("launch", [])))


def kernels_elsewhere(text: str) -> str | None:
    """Return, as a sentence, what a Python file without kernels has to do with Triton; None if that is nothing."""
    if "triton" not in text:
        return None
    found = _captures(text.encode())
    names = imported_names(found.get("import", []))
    launched = dict.fromkeys(_launched(found.get("launch", [])))
    modules = dict.fromkeys(names[name].rpartition(".")[0] for name in launched if "." in names.get(name, ""))
    kernels = [name for name in launched if "." in names.get(name, "")]
    if kernels:
        return f"It launches {', '.join(kernels)}, from {', '.join(modules)}."
    helpers = ", ".join(function.kernel.name for function in _functions(text, Path())[0] if function.returns)
    return f"Its functions are for kernels elsewhere, as each returns a value: {helpers}." if helpers else None


@cache
def _query() -> "Query":
    from tree_sitter import Query

    return Query(python_grammar(), _QUERY)


def _captures(data: bytes) -> "dict[str, list[Node]]":
    """Return the nodes of each capture of the query, in file order."""
    from tree_sitter import QueryCursor

    found = QueryCursor(_query()).captures(parse_python(data).root_node)
    return {name: sorted(nodes, key=lambda node: node.start_byte) for name, nodes in found.items()}


def _function(
    data: bytes, definition: "Node", names: dict[str, str], path: Path, applied: dict[str, set[str]]
) -> _Function | None:
    around = definition.parent
    node = around if around is not None and around.type == "decorated_definition" else definition
    decorators = {_resolved(text_of(d)[1:], names) for d in node.children if d.type == "decorator"}
    name, body = definition.child_by_field_name("name"), definition.child_by_field_name("body")
    parameters = definition.child_by_field_name("parameters")
    if name is None or body is None or parameters is None:
        return None
    decorators |= applied.get(text_of(name), set())
    if not decorators & _JIT:
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
    text = data[body.start_byte : body.end_byte].decode()
    used = frozenset(called or given for called, given in _USED.findall(text))
    return _Function(kernel, used, _RETURNS.search(text) is not None)


def _applied(assignments: "list[Node]", names: dict[str, str]) -> dict[str, set[str]]:
    """Return, by function name, the decorators applied by calls, `f = triton.jit(f)`.

    They may be nested, `g = triton.autotune(...)(triton.jit(f))`, and applied one after another.
    """
    found: dict[str, set[str]] = {}
    made_of: dict[str, str] = {}
    for node in assignments:
        decorators: set[str] = set()
        value = node.child_by_field_name("right")
        while value is not None and value.type == "call":
            function, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
            if function is None or arguments is None or arguments.type != "argument_list":
                break
            decorators.add(_resolved(text_of(function), names))
            value = next((c for c in arguments.named_children if c.type != "comment"), None)
        target = node.child_by_field_name("left")
        if target is None or value is None or value.type != "identifier":
            continue
        if any(decorator.partition(".")[0] == "triton" for decorator in decorators):
            of = made_of.get(text_of(value), text_of(value))
            made_of[text_of(target)] = of
            found.setdefault(of, set()).update(decorators)
    return found


def _resolved(expression: str, names: dict[str, str]) -> str:
    """Return the dotted name of a decorator or annotation, without a call's arguments."""
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


def _launched(calls: "list[Node]") -> list[str]:
    """Return the last parts of the names before the brackets of launches, `add` for `self.ops.add[grid](x)`."""
    subscripts = [call.child_by_field_name("function") for call in calls]
    values = [one.child_by_field_name("value") for one in subscripts if one is not None]
    return [text_of(value).rsplit(".", 1)[-1].strip() for value in values if value is not None]
