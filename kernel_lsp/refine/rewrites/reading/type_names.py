"""Reads what names of types stand for, in a file and in the headers beside it."""

from functools import lru_cache
from pathlib import Path

from tree_sitter import Node, Parser

from kernel_lsp.compiler.headers.user import includes_of
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import cuda_grammar
from kernel_lsp.source.trees import field, text_of, walk

_PARSER = Parser(cuda_grammar())
_MOST_HEADERS = 8
_MOST_BYTES = 1 << 18


def type_names(root: Node) -> dict[str, str]:
    """Return what the names of types in a tree stand for: macros, `typedef` and `using`.

    Of several meanings, as under `#if` and `#else`, it is the last one.
    """
    found: dict[str, str] = {}
    for node in walk(root):
        if node.type == "preproc_def" and (value := node.child_by_field_name("value")) is not None:
            found[text_of(field(node, "name"))] = text_of(value).strip()
        elif node.type == "alias_declaration":
            found[text_of(field(node, "name"))] = text_of(field(node, "type"))
        elif node.type == "type_definition" and field(node, "declarator").type == "type_identifier":
            found[text_of(field(node, "declarator"))] = text_of(field(node, "type"))
    return found


def type_names_beside(file: SourceFile) -> dict[str, str]:
    """Return the same of the headers that a file includes from its own folder, and of those that these include."""
    found: dict[str, str] = {}
    pending, seen = [(file.path.parent, _quoted(file.text))], set[Path]()
    while pending:
        folder, included = pending.pop(0)
        for path in (folder / name for name in included):
            if len(seen) < _MOST_HEADERS and path not in seen and path.is_file():
                seen.add(path)
                header = _header(path, path.stat().st_mtime_ns)
                found |= header[0]
                pending.append((path.parent, header[1]))
    return found


def _quoted(text: str) -> tuple[str, ...]:
    return tuple(name for name, quoted in includes_of(text) if quoted)


@lru_cache(maxsize=64)  # each tree of a kernel asks, and a rewrite makes several
def _header(path: Path, _changed_ns: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what names of types stand for in a header, and which headers it includes; nothing of a large one."""
    data = path.read_bytes()
    if len(data) > _MOST_BYTES:
        return {}, ()
    return type_names(_PARSER.parse(data).root_node), _quoted(data.decode(errors="replace"))
