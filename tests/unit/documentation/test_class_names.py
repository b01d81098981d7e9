"""A public class has a name of its own, so that a search for the name finds one thing."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_two_public_classes_share_a_name():
    paths = [path for folder in ("kernel_lsp", "server") for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    names = Counter(n.name for n in nodes if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))
    assert {name for name, count in names.items() if count > 1} == set()
