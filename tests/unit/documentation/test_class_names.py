"""A public class has a name of its own, so that a search for the name finds one thing."""

import ast
from collections import Counter
from pathlib import Path

from tests.unit.documentation.statements import statements, statements_of

ROOT = Path(__file__).parents[3]


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
    nodes = statements(ast.parse(text).body)
    assert sorted(node.name for node in nodes if isinstance(node, ast.ClassDef)) == list("ABCDEFG")


def test_no_two_public_classes_share_a_name():
    paths = [path for folder in ("kernel_lsp", "server") for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in paths for node in statements_of(path)]
    names = Counter(n.name for n in nodes if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()
