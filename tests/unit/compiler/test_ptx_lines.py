"""Lines of PTX and the lines of the source that they were made from."""

from kernel_lsp.compiler.ptx.lines import ptx_lines

PTX = """.version 8.5
.target sm_90
\t// .globl\tfirst
.visible .entry first_more(
\t.param .u64 a
)
{
\tret;
}
.visible .entry first(
\t.param .u64 a
)
{
\t.reg .b32 %r<9>;
$L__begin:
\t.loc\t1 3 5
\tmov.u32 %r1, %tid.x;
\t.loc\t2 40 1, function_name $L__info_string0, inlined_at 1 4 9
\tadd.s32 %r2, %r1, 1;
\t.loc\t2 41 1
\tadd.s32 %r3, %r1, 2;
\t.loc\t2 42 1 // standard.py:42:1 @[ k.cu:7:3 ]
\t@%p1 bra $L__begin;
}
.file\t1 "/a/k.cu"
.file\t2 "/usr/include/x.h"
"""


def test_a_kernels_ptx_is_cut_out_with_its_lines_of_the_source() -> None:
    found = list(ptx_lines(PTX, "first", "/a/k.cu"))
    assert found == [
        (".visible .entry first(", None),
        ("\t.param .u64 a", None),
        (")", None),
        ("{", None),
        ("\t.reg .b32 %r<9>;", None),
        ("$L__begin:", None),
        ("\tmov.u32 %r1, %tid.x;", 3),
        ("\tadd.s32 %r2, %r1, 1;", 4),
        ("\tadd.s32 %r3, %r1, 2;", None),
        ("\t@%p1 bra $L__begin;", 7),
        ("}", None),
    ]


def test_a_kernel_that_is_not_there_has_none() -> None:
    assert list(ptx_lines(PTX, "second", "/a/k.cu")) == []


def test_a_path_that_is_not_ascii_is_read_from_its_escapes() -> None:
    ptx = PTX.replace("/a/k.cu", r"/\303\244 b/k.cu")
    assert list(ptx_lines(ptx, "first", "/ä b/k.cu")) == list(ptx_lines(PTX, "first", "/a/k.cu"))


def test_a_files_name_may_have_blanks() -> None:
    ptx = PTX.replace("k.cu", "my k.cu")
    assert list(ptx_lines(ptx, "first", "/a/my k.cu")) == list(ptx_lines(PTX, "first", "/a/k.cu"))
