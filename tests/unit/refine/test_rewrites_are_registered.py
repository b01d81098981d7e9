"""A rewrite is tried only if a language lists it: whoever forgets that is told."""

from pathlib import Path

import pytest

from kernel_lsp.languages.cuda import refine as cuda
from kernel_lsp.languages.triton import refine as triton
from kernel_lsp.refine import rewrites
from kernel_lsp.refine.rewrites import FIXES

WRITTEN = {path.stem for path in Path(rewrites.__file__).parent.glob("*.py") if "\ndef rewrite(" in path.read_text()}
"""Names of the modules that hold a rewrite."""


def test_every_rewrite_is_listed_by_a_language() -> None:
    listed = {one.__module__.rpartition(".")[2] for one in (*cuda.REWRITES, *triton.REWRITES)}
    assert WRITTEN - listed == set(), "add them to `REWRITES` in languages/cuda/refine.py or languages/triton/refine.py"


@pytest.mark.parametrize("rule", FIXES)
def test_what_fixes_a_finding_is_a_rewrite(rule: str) -> None:
    assert set(FIXES[rule]) - WRITTEN == set(), "names in `FIXES` are those of modules in refine/rewrites"
