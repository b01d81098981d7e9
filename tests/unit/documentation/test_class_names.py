"""A public class has a name of its own, so that a search for the name finds one thing."""

import ast
from collections import defaultdict
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
    files: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        for node in statements_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
