"""Reads what names of types stand for, in a file and in the headers beside it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
_DEFINED = re.compile(r"(?P<not>!)?defined\(?(?P<name>\w+?)\)?")


def type_names(file: SourceFile, root: Node) -> dict[str, str]:
    """Return what the names of types stand for: macros, `typedef` and `using`, of a file and headers in its folder.

    Those count, too, that headers include in turn. A name with several meanings is left out. A branch of `#ifdef` or
    `#if defined` counts if file and headers say that it is taken, and one of another `#if` always.

    Args:
        file: the file.
        root: its tree.
    """
    found: dict[str, str] = {}
    pending, seen, defined = [(file.path.parent, _quoted(file.text))], set[Path](), _macros(root)
    while pending:
        folder, included = pending.pop(0)
        for path in (folder / name for name in included):
            if len(seen) < _MOST_HEADERS and path not in seen and path.is_file():
                seen.add(path)
                header = _header(path, path.stat().st_mtime_ns, defined)
                found |= header.types
                defined |= header.macros
                pending.append((path.parent, header.includes))
    return found | _meanings(root, defined)


def _meanings(root: Node, defined: frozenset[str]) -> dict[str, str]:
    """Return the names of types in one tree, where some macros are defined."""
    found: dict[str, set[str]] = {}
    for node in _compiled(root, defined):
        if node.type == "preproc_def" and (value := node.child_by_field_name("value")) is not None:
            found.setdefault(text_of(field(node, "name")), set()).add(text_of(value).strip())
        elif node.type == "alias_declaration":
            found.setdefault(text_of(field(node, "name")), set()).add(text_of(field(node, "type")))
        elif node.type == "type_definition" and field(node, "declarator").type == "type_identifier":
            found.setdefault(text_of(field(node, "declarator")), set()).add(text_of(field(node, "type")))
    return {name: meanings.pop() for name, meanings in found.items() if len(meanings) == 1}


def _macros(root: Node) -> frozenset[str]:
    return frozenset(text_of(field(n, "name")) for n in walk(root) if n.type == "preproc_def")


def _compiled(root: Node, defined: frozenset[str]) -> Iterator[Node]:
    """Yield the nodes of a tree, without those that are known to be left out."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        taken = _is_taken(node, defined) if node.type in ("preproc_ifdef", "preproc_if", "preproc_elif") else None
        other = node.child_by_field_name("alternative")
        if taken is None:
            waiting += node.children
        else:
            waiting += [child for child in node.children if (child != other) == taken]


def _is_taken(node: Node, defined: frozenset[str]) -> bool | None:
    """Return True for a branch that is compiled, False for one that is not; None if its text does not say."""
    if node.type == "preproc_ifdef":
        name, wanted = text_of(field(node, "name")), node.children[0].type == "#ifdef"
        guards = not wanted and name in _macros(node)  # against a second include, or a second value
        return None if guards else (name in defined) == wanted
    asked = _DEFINED.fullmatch("".join(text_of(field(node, "condition")).split()))
    return None if asked is None else (asked["name"] in defined) == (asked["not"] is None)


def _quoted(text: str) -> tuple[str, ...]:
    return tuple(name for name, quoted in includes_of(text) if quoted)


@dataclass(frozen=True)
class _Header:
    types: dict[str, str]
    macros: frozenset[str]
    includes: tuple[str, ...]


@lru_cache(maxsize=64)  # each tree of a kernel asks, and a rewrite makes several
def _header(path: Path, _changed_ns: int, defined: frozenset[str]) -> _Header:
    """Return a header that is included where some macros are defined; an empty one in place of a large one."""
    data = path.read_bytes()
    if len(data) > _MOST_BYTES:
        return _Header({}, frozenset(), ())
    root = _PARSER.parse(data).root_node
    macros = _macros(root)
    return _Header(_meanings(root, defined | macros), macros, _quoted(data.decode(errors="replace")))
