"""Checks that judged code still stands in a text, at any place and in any layout."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.outline import outline, without_comments
from kernel_lsp.source.python import is_python, python_ast
from kernel_lsp.source.text import Span

_TOKEN = re.compile(rb"\w+|[^\w\s]")


def still_holds(current: str, judged: str, path: Path, apart_from: Sequence[Kernel] = ()) -> bool:
    """Return True if every top-level declaration or statement of `judged` stands in `current` too.

    Comments, layout and order do not count, nor does new code in `current`: the judged code
    cannot have referred to that.

    Args:
        current: the text as it is now.
        judged: the text as it was judged.
        path: of both; its suffix tells the language.
        apart_from: kernels of `judged` that do not matter.
    """
    if current == judged:
        return True
    parts = _statements if is_python(path) else _declarations
    try:
        wanted, there = Counter(parts(judged, [k.span for k in apart_from])), Counter(parts(current, []))
    except SyntaxError:  # the user is typing
        return False
    return wanted <= there


def _statements(text: str, without: Sequence[Span]) -> Iterator[str]:
    """Yield Python's top-level statements without docstrings and other bare strings."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in python_ast(data).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        at = starts[node.lineno - 1] + node.col_offset
        if not any(span.start <= at < span.end for span in without):
            yield ast.dump(node)


def _declarations(text: str, without: Sequence[Span]) -> Iterator[tuple[bytes, ...]]:
    """Yield C++'s declarations at namespace level, each after its namespaces, and its directives: as tokens."""
    data = text.encode()
    found, code = outline(data), without_comments(data)
    for one in found.declarations:
        if not any(span.holds(one.span) or one.span.holds(span) for span in without):
            yield (*one.scope, *_TOKEN.findall(code, one.span.start, one.span.end))
    for span in found.directives:
        yield tuple(_TOKEN.findall(code, span.start, span.end))
