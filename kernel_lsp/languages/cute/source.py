"""CuTe DSL, the Python of CUTLASS: functions under `@cute.kernel`, launched by functions under `@cute.jit`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.comments import Comment, python_comments
from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.kernel import Kernel, Language, Parameter
from kernel_lsp.source.language import SourcePart
from kernel_lsp.source.python import signature
from kernel_lsp.source.trees import imported_names, span_of, text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_MODULES = frozenset(("cutlass.cute", "cutlass"))


class _Cute:
    title = "CuTe DSL"
    suffixes: tuple[str, ...] = (".py",)
    editor_ids: tuple[str, ...] = ("python",)
    python = True
    fence = "python"
    highlighted_as = "python"
    comment = "#"
    signs: tuple[str, ...] = ("cutlass",)
    packages: tuple[str, ...] = ("cutlass",)
    launches_itself = False
    computed = False

    def recognises(self, text: str, path: Path) -> bool:
        return bool(self.find_kernels(text, path))

    def find_kernels(self, text: str, path: Path) -> tuple[Kernel, ...]:
        return tuple(_decorated(text, path, "kernel"))

    def line_comments(self, text: str) -> tuple[Comment, ...]:
        return python_comments(text)

    def head(self, kernel: Kernel) -> str:
        return f"@cute.kernel\n{signature(kernel)}"


def find_entries(text: str, path: Path) -> tuple[Kernel, ...]:
    """Return the functions under `@cute.jit`, in order: those that host code calls, and helpers of kernels."""
    return tuple(_decorated(text, path, "jit"))


def _decorated(text: str, path: Path, decorator: str) -> Iterator[Kernel]:
    if "cutlass" not in text:
        return
    nodes = list(walk(parse_python(text.encode()).root_node))
    names = imported_names(n for n in nodes if n.type in ("import_statement", "import_from_statement"))
    for node in nodes:
        definition = node.child_by_field_name("definition") if node.type == "decorated_definition" else None
        if definition is None or definition.type != "function_definition":
            continue
        if any(_is_of_cute(text_of(d)[1:], names, decorator) for d in node.children if d.type == "decorator"):
            yield from _kernel(node, definition, path)


def _is_of_cute(written: str, names: dict[str, str], decorator: str) -> bool:
    """Return True if a decorator, `cute.kernel` or `cute.jit(preprocess=True)`, is CuTe's, however imported."""
    first, _, rest = written.partition("(")[0].strip().partition(".")
    module, _, name = ".".join(filter(None, (names.get(first, first), rest))).rpartition(".")
    return name == decorator and module in _MODULES


def _kernel(node: "Node", definition: "Node", path: Path) -> Iterator[Kernel]:
    parts = [definition.child_by_field_name(part) for part in ("name", "parameters", "body")]
    name, parameters, body = parts
    if name is not None and parameters is not None and body is not None:
        found = tuple(parameter for one in parameters.named_children for parameter in _parameter(one))
        yield Kernel(text_of(name), Language.CUTE, path, span_of(node), span_of(name), span_of(body), found)


def _parameter(node: "Node") -> Iterator[Parameter]:
    name = node if node.type == "identifier" else node.child_by_field_name("name")
    if name is None and node.type == "typed_parameter":
        name = node.named_children[0]
    if name is not None and name.type == "identifier":
        annotation = node.child_by_field_name("type")
        kind = text_of(annotation) if annotation else ""
        yield Parameter(text_of(name), kind, "Constexpr" in kind)


PART: SourcePart = _Cute()
