"""Reads what names of types stand for, in a file and in the headers beside it."""

from collections.abc import Iterator
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
    """Return the same of the headers that a file includes from its own folder, by those as well."""
    found: dict[str, str] = {}
    for path in _headers(file):
        found |= _of_header(path, path.stat().st_mtime_ns)
    return found


def _headers(file: SourceFile) -> Iterator[Path]:
    """Yield headers beside a file, each before those that include it later; not more than a few, nor large ones."""
    pending, seen = [(file.path.parent, file.text)], set[Path]()
    while pending and len(seen) < _MOST_HEADERS:
        folder, text = pending.pop(0)
        for name, quoted in includes_of(text):
            path = folder / name
            if quoted and path not in seen and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                seen.add(path)
                pending.append((path.parent, path.read_text(encoding="utf-8", errors="replace")))
                yield path


@lru_cache(maxsize=64)
def _of_header(path: Path, _changed_ns: int) -> dict[str, str]:
    return type_names(_PARSER.parse(path.read_bytes()).root_node)
