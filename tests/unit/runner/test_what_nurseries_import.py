"""A nursery imports what its workers need and no more: every session and every editor waits for it."""

import asyncio
import subprocess
import sys

import pytest
from runner_support import KERNEL_PATH, SECONDS

from kernel_lsp.runner.libraries import is_importable_ahead
from kernel_lsp.runner.messages import subject as messages
from kernel_lsp.runner.messages.subject_answers import Loaded
from kernel_lsp.runner.pool import Flavour, Pool

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


@pytest.mark.parametrize(
    ("name", "importable"),
    [
        ("torch.distributed.tensor", True),
        ("triton", True),
        ("torch.distributed.tensor._ops", False),  # its package imports it
        ("torch.testing", False),
        ("torch.testing._internal", False),
        ("torchvision", False),
        ("kernels_of_mine", False),
    ],
)
def test_only_some_libraries_are_imported_where_no_users_code_runs(name: str, importable: bool) -> None:
    assert is_importable_ahead(name) is importable


_HEAVY = "torch.distributed.tensor"
_KERNEL = f"""
import sys

IMPORTED = "{_HEAVY}" in sys.modules
import {_HEAVY}


def launch(x):
    return x
"""


def test_modules_that_one_worker_had_to_import_the_next_ones_have() -> None:
    async def load(pool: Pool) -> Loaded:
        worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
        return await worker.ask(messages.Load(path=KERNEL_PATH, text=_KERNEL), deadline=SECONDS)

    async def twice() -> tuple[Loaded, Loaded, bool]:
        async with Pool() as pool:
            first = await load(pool)
            new = pool.foresee((*first.libraries, "torch.no_such_module", "antigravity"))
            assert not pool.foresee(first.libraries)
            return first, await load(pool), new

    first, second, new = asyncio.run(twice())
    assert new
    assert _HEAVY in first.libraries
    assert _HEAVY not in second.libraries
