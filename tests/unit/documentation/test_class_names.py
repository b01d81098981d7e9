"""A public class has a name of its own, so that a search for the name finds one thing."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]


def classes_of(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names of the classes in these statements and below; expressions, most of a tree, hold none."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, part, ())
            yield from classes_of(found if isinstance(found, list) else ())


def test_classes_are_found_wherever_they_stand():
    text = """
class A:
    class B: pass
def f():
    if x:
        class C: pass
    elif y:
        class D: pass
    try:
        class E: pass
    except OSError:
        class F: pass
    finally:
        match z:
            case 1:
                class G: pass
"""
    assert sorted(classes_of(ast.parse(text).body)) == list("ABCDEFG")


def test_no_two_public_classes_share_a_name():
    paths = [path for folder in ("kernel_lsp", "server") for path in (ROOT / folder).rglob("*.py")]
    classes = (name for path in paths for name in classes_of(ast.parse(path.read_text()).body))
    names = Counter(name for name in classes if not name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()
