"""Columns of tensor memory that PTX says a kernel allocates."""

import pytest

from kernel_lsp.compiler.ptx.tensor_memory import allocated_columns

ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};"
KERNEL = (
    ".visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n\t{}\n\tret;\n}}\n.visible .entry other()\n{{\n\tret;\n}}\n"
)


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        (ALLOC.format(64), 64),
        ("mov.b32 \t%r5, 256;\n\t// begin inline asm\n\t" + ALLOC.format("%r5"), 256),
        ("ld.param.u32 \t%r5, [k_param_0];\n\t" + ALLOC.format("%r5"), None),
        ("add.s32 \t%r5, %r6, 32;\n\t" + ALLOC.format("%r5"), None),
        ("mov.b32 %r5, 64;\n\t@%p1 mov.b32 %r5, 128;\n\t" + ALLOC.format("%r5"), None),
        (ALLOC.format(64) + "\n\t" + ALLOC.format(32), None),
        ("bar.sync 0;", 0),
    ],
)
def test_columns_are_known_where_one_instruction_names_them(body: str, columns: int | None) -> None:
    ptx = KERNEL.format(body)
    assert allocated_columns(ptx, "k") == columns
    assert allocated_columns(ptx, "other") == 0
