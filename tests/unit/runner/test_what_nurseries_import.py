"""A nursery imports what its workers need and no more: every session and every editor waits for it."""

import subprocess
import sys

_PROGRAM = """
import importlib, sys
from kernel_lsp.runner import pool

for recipe in pool._RECIPES.values():
    for module in (*recipe.imports, *recipe.own):
        importlib.import_module(module)
print(*sorted({"torch._dynamo", "sympy", "triton", "vllm"} & sys.modules.keys()))
"""


def test_compilers_that_few_kernels_need_are_not_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []
