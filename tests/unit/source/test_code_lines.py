"""Texts with equal lines of code do the same; whatever a comment may change is kept as written."""

import pytest

from kernel_lsp.source.code_lines import code_lines

CUDA = """\
// adds
#pragma unroll

__global__ void k(float* x) {
    *x += 1;  // one
    /* a
       b */
}
"""


def test_comments_and_empty_lines_make_no_other_code():
    found = code_lines(CUDA, python=False)
    assert found.numbers == (2, 4, 5, 8)
    assert found.text.split("\n")[2] == "    *x += 1;"
    again = code_lines("// more\n\n" + CUDA.replace("  // one", ""), python=False)
    assert again.text == found.text
    assert again.numbers == (4, 6, 7, 10)


def test_comments_and_empty_lines_of_python_make_no_other_code():
    text = 'import torch  # it\n\n\ndef f(x):\n    # doubles\n    return 2 * x, f"{x}#", "#"\n'
    found = code_lines(text, python=True)
    assert found.text == 'import torch\ndef f(x):\n    return 2 * x, f"{x}#", "#"'
    assert found.numbers == (1, 4, 6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("#define A x \\\n\ny\n", "#define A x \\\ny\n"),  # an empty line ends a macro
        ("#define A x \\ // c\ny\n", "#define A x \\\ny\n"),
        ("#define A x /* c\n*/ y\n", "#define A x /* c\n*/\n   y\n"),  # a comment is part of the macro's line
        ('auto s = R"(a\n\nb)";\n', 'auto s = R"(a\nb)";\n'),
        ('auto s = R"(a // b\n)";\n', 'auto s = R"(a\n)";\n'),
        ('auto s = "// a";\n', 'auto s = "// b";\n'),
        ("int x = 1; // c \\\nx = 2;\n", "int x = 1; // c\nx = 2;\n"),
        ('auto c = L\'"\' + "a//b";\n', 'auto c = L\'"\' + "a//c";\n'),
        ('case\'"\': s = "a//b";\n', 'case\'"\': s = "a//c";\n'),
        ("// c \\\nx();\n", "x();\n"),
        ("/* c \\\nx();\n*/\n", "x();\n"),
        ('auto s = "a;  // b\n', 'auto s = "a;\n'),
        ("x(); // c \\ \ny();\n", "x(); // d \\ \ny();\n"),  # some compilers join such lines, too
        ("x(); /\\\n/ y();\n", "x(); /\\\n/ z();\n"),
        ("int x = 1; /* fall through */\n", "int x = 1;\n"),
        ("int x;  /* c */ int y;\n", "int x; int y;\n"),  # a column
        ("int x = 1;\r// c\r", "int x = 1;\r"),
    ],
)
def test_what_a_comment_may_change_is_other_code(one, other):
    assert code_lines(one, python=False).text != code_lines(other, python=False).text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"""a\n\nb"""\n', '"""a\nb"""\n'),
        ('"""a # b"""\n', '"""a"""\n'),
        ('x = f"""a\n# b\n{1}"""\n', 'x = f"""a\n{1}"""\n'),
        ("x = 1 \\\n\ny = 2\n", "x = 1 \\\ny = 2\n"),
        ("# coding: latin-1\nx = 1\n", "x = 1\n"),
        ("x = (  # is not closed\n", "x = (\n"),
        ("if x:\n    y = 1\n", "if x:\n  y = 1\n"),
    ],
)
def test_what_a_comment_may_change_is_other_python(one, other):
    assert code_lines(one, python=True).text != code_lines(other, python=True).text
