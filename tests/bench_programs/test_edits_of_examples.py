"""The edits whose latency is measured: each kernel of each example gets a statement in its own language."""

import ast
from pathlib import Path

import pytest

from kernel_lsp.check import find_kernel_files
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from tests.bench.edit_latency import EXAMPLES, edited

SOURCES = {str(source.path.relative_to(EXAMPLES)): source for source in find_kernel_files([EXAMPLES])}


@pytest.mark.parametrize("name", SOURCES)
def test_an_edit_is_in_every_kernel_and_leaves_it_one(name):
    before, after = SOURCES[name], edited(SOURCES[name], 7)
    kernels = find_kernels(after.text, after.path)
    assert kernels
    assert [k.name for k in kernels] == [k.name for k in find_kernels(before.text, before.path)]
    for kernel in kernels:
        written = "edit = 7\n" if kernel.language is Language.TRITON else '{ asm volatile("// edit 7");'
        assert after.text.encode()[kernel.body.start :].decode().startswith(written)
    if Path(name).suffix == ".py":
        ast.parse(after.text)
