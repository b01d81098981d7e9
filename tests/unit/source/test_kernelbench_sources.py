"""KernelBench's Python files as text: problems, answers, and the CUDA that they give to `load_inline`, in its place."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_lsp.source import findings, modules, triton
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import cuda_part, find_kernels, language_of
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import device_units, device_view, in_place, inline_sources, is_answer, is_problem

FILE = Path("answer_cuda.py")
KERNEL = "__global__ void k(float* x) { x[0] = 1.f; }"
IMPORT = "from torch.utils.cpp_extension import load_inline\n"


def cuda_of(text: str) -> list[str]:
    return [source.text for source in inline_sources(text) if source.kind == "cuda"]


@pytest.mark.parametrize(
    "written",
    [
        'load_inline(name="m", cpp_sources="", cuda_sources="""KERNEL""")',
        'load_inline("m", "", """KERNEL""")',
        'load_inline("m", [""], ["KERNEL"], functions=["k"])',
        'load_inline(name="m", cuda_sources=("KERNEL",), cpp_sources=None)',
        'SRC = "KERNEL"\nload_inline("m", cuda_sources=SRC)',
        'SRC = r"""KERNEL"""\nload_inline("m", cuda_sources=[SRC])',
        'SRC: str = "KERNEL"\nload_inline("m", cuda_sources=SRC)',
        'A = B = "KERNEL"\nload_inline("m", cuda_sources=A)',
        'SRC = "KERNEL".strip()\nload_inline("m", cuda_sources=SRC)',
        'import textwrap\nload_inline("m", cuda_sources=textwrap.dedent("""KERNEL"""))',
        'from textwrap import dedent\nload_inline("m", cuda_sources=dedent("""KERNEL""".rstrip()))',
        'load_inline("m", cuda_sources="\\n".join(["KERNEL"]))',
        'def build():\n    source = "KERNEL"\n    return load_inline("m", cuda_sources=source)',
        'def build():\n    return load_inline("m", cuda_sources=SRC)\nSRC = "KERNEL"',
        'class ModelNew:\n    source = "KERNEL"\n    op = load_inline("m", cuda_sources=source)',
        'if True:\n    SRC = "KERNEL"\n    op = load_inline("m", cuda_sources=SRC)',
        'import torch.utils.cpp_extension as ext\next.load_inline("m", cuda_sources="KERNEL")',
        'from torch.utils import cpp_extension\ncpp_extension.load_inline("m", cuda_sources="KERNEL")',
        'import torch\ntorch.utils.cpp_extension.load_inline("m", cuda_sources="KERNEL")',
        'from torch.utils.cpp_extension import load_inline as li\nli(name="m", cuda_sources="KERNEL")',
        'load_inline("m", cuda_sources=(  # the kernel\n    "KERNEL"\n))',
        'load_inline("m", cuda_sources="KERNEL")\ndef unfinished(:\n    x = (',
    ],
)
def test_what_people_write_is_followed_to_the_text(written):
    text = IMPORT + written.replace("KERNEL", KERNEL)
    assert cuda_of(text) == [KERNEL]
    (kernel,) = find_kernels(text, FILE)
    data = text.encode()
    assert data[kernel.span.start : kernel.span.end].decode() == KERNEL
    assert data[kernel.name_span.start : kernel.name_span.end] == b"k"
    assert (kernel.language, kernel.path) == (Language.CUDA, FILE)
    assert language_of(FILE, text) is Language.TORCH


@pytest.mark.parametrize(
    "written",
    [
        'load_inline("m", cuda_sources=f"KERNEL {1}")',
        'load_inline("m", cuda_sources=f"KERNEL")',
        'load_inline("m", cuda_sources="KERNEL".replace("k", "l"))',
        'load_inline("m", cuda_sources="KERNEL %s" % 1)',
        'load_inline("m", cuda_sources=b"KERNEL")',
        'load_inline("m", cuda_sources=open("k.cu").read())',
        'load_inline("m", cuda_sources="KERNEL" + SUFFIX)',
        'load_inline("m", cuda_sources=unknown)',
        'load_inline("m", cuda_sources=["KERNEL", make()])',
        'load_inline("m", **{"cuda_sources": "KERNEL"})',
        'a = b\nb = a\nload_inline("m", cuda_sources=a)',
        'SRC = "KERNEL"\nSRC += make()\nload_inline("m", cuda_sources=SRC)',
        'load_inline("m", cuda_sources="""KERNEL',
        "load_inline()",
        'load("m", cuda_sources="KERNEL")',
        '"load_inline is not called"',
    ],
)
def test_text_that_is_computed_is_left_out_as_a_whole(written):
    text = IMPORT + written.replace("KERNEL", KERNEL)
    assert cuda_of(text) == []
    assert find_kernels(text, FILE) == ()


def test_a_name_means_what_it_was_given_last_and_what_was_added_since():
    text = f"""{IMPORT}
SRC = "old"
SRC = "#define A 1\\n"
SRC += "{KERNEL}"
first = load_inline("m", cuda_sources=SRC)
SRC = "{KERNEL.replace("k(", "later(")}"
"""
    assert cuda_of(text) == ["#define A 1\n", KERNEL]


def test_pieces_stand_in_the_order_in_which_they_are_compiled_and_cpp_is_told_apart():
    text = f"""{IMPORT}
HEAD = "struct S {{}};"
op = load_inline("m", cpp_sources=["void f();", "void g();"], cuda_sources=[HEAD, "{KERNEL}" "//end"])
"""
    found = [(source.kind, source.text) for source in inline_sources(text)]
    assert found == [
        ("cpp", "void f();"),
        ("cpp", "void g();"),
        ("cuda", "struct S {};"),
        ("cuda", KERNEL),
        ("cuda", "//end"),
    ]
    assert len({source.call for source in inline_sources(text)}) == 1


def test_each_call_is_a_unit_of_its_own_with_the_flags_that_change_its_code():
    text = f"""{IMPORT}
HELPER = "__device__ int helper() {{ return 1; }}"
a = load_inline("a", "", HELPER + "{KERNEL}", extra_cuda_cflags=["-O3", "--use_fast_math", "-DN=4", "-lineinfo"])
b = load_inline("b", "", [HELPER, "{KERNEL.replace("k(", "l(")}"], extra_cflags=["-DHOST"])
"""
    first, second = device_units(text)
    assert (first.flags, second.flags) == (("--use_fast_math", "-DN=4"), ())
    assert [unit.text.count("helper") for unit in (first, second)] == [1, 1]
    assert "void k(" in first.text
    assert "void k(" not in second.text
    assert [kernel.name for kernel in find_kernels(text, FILE)] == ["k", "l"]


def test_escapes_are_decoded_and_their_line_is_filled_up_at_its_end():
    text = IMPORT + 'load_inline("m", "", """\nprintf("%d\\\\n", \\x41); // é\nint b;\\\n#define F(x) \\\\\n  x\n""")\n'
    (found,) = [one for one in cuda_of(text) if one]
    assert found == ast.parse(text).body[1].value.args[2].value
    view = device_view(text).split("\n")
    assert view[2] == 'printf("%d\\n", A); // é    '
    assert view[3] == "int b;\\"
    assert view[4] == "#define F(x)  \\", "the backslash that joins two lines stays the last of its line"
    assert [len(a.encode()) for a in view] == [len(b.encode()) for b in text.split("\n")]


@pytest.mark.parametrize("wrap", ["{}", "{}.strip()", "textwrap.dedent({})", "[{}]", "'#define A 1\\n'\n{}"])
def test_a_given_text_is_found_again_on_its_lines(wrap):
    literal = f'"""\n{KERNEL}  // \\\\n\n\nint last;\n"""'
    text = f"{IMPORT}import textwrap\nSRC = (\n{wrap.format(literal)})\nload_inline('m', 'int f();', SRC)  # after\n"
    given = "\n".join(cuda_of(text))
    placed = in_place(text, given.strip())
    assert placed is not None
    assert "".join(placed.split()) == "".join(given.split())
    lines, written = placed.split("\n"), text.split("\n")
    at = next(i for i, line in enumerate(written) if KERNEL in line)
    assert lines[at] == f"{KERNEL}  // \\n"
    assert lines[at + 2] == "int last;"
    assert device_units(text)[0].text == placed
    assert (in_place(text, "int f();") or "").strip() == "int f();"
    assert in_place(text, "__global__ void other();") is None
    assert in_place(text, "") is None


COMPUTED = """
__global__ void k(float* x) {
    x[0] = 1.f;
}
torch::Tensor run(torch::Tensor x) { return x; }
"""
DOUBLED = COMPUTED.replace("{", "{{").replace("}", "}}").replace("1.f", "{N}.f")


@pytest.mark.parametrize(
    "written",
    [
        f"N = 7\nSRC = f'''{DOUBLED}'''\n",
        f"SRC = '''{DOUBLED}'''.format(N=7)\n",
        f"class A:\n    SRC = '''{COMPUTED}'''.replace('1.f', '7.f')\n",
        f"import math\nH = '#define A 1\\n#define B 2\\n'\nK = '''{COMPUTED}'''\nSRC = H + K % ()\n",
    ],
)
def test_a_computed_text_is_found_by_the_lines_that_are_written(written):
    names: dict[str, Any] = {}
    exec(written, names)
    given = names.get("SRC") or names["A"].SRC
    placed = in_place(written + "load_inline('m', '', SRC)\n", given)
    assert placed is not None
    assert "".join(placed.split()) == "".join(given.split())
    for told in ("__global__", "torch::Tensor run"):
        at = next(i for i, line in enumerate(written.splitlines()) if told in line)
        assert told in placed.splitlines()[at]


@pytest.mark.parametrize("flag", ["--extended-lambda", "--expt-extended-lambda", "-extended-lambda"])
def test_lambdas_that_may_say_where_they_run_need_not(flag):
    text = f"{IMPORT}load_inline('m', '', '{KERNEL} auto f = [] __host__ __device__ (float x) {{}};'"
    (unit,) = device_units(f"{text}, extra_cuda_cflags=['{flag}'])")
    (plain,) = device_units(f"{text})")
    assert unit.text == plain.text.replace("__host__ __device__", " " * 19)


def test_no_blank_line_breaks_a_macro_that_goes_on():
    given = "#define FIRST_PART(x) \\\n  second_part(x)\nint the_last_one;\n"
    written = "#define FIRST_PART(x) \\\n\n\n  second_part(x)\n\nint the_last_one;\n"
    assert in_place(written, given) == "#define FIRST_PART(x) \\\n  second_part(x)\n\n\n\nint the_last_one;"


def test_text_that_cannot_stand_in_place_is_given_as_it_is_from_its_first_line():
    """A line break by an escape within a C string is a mistake, which a compiler must be let to see."""
    text = f'{IMPORT}\nload_inline("m", "", """\nvoid f() {{ printf("a\\n"); }}\n{KERNEL}""")\n'
    (unit,) = device_units(text)
    assert unit.text.split("\n") == ["", "", "", 'void f() { printf("a', '"); }', KERNEL]
    text = f'{IMPORT}load_inline("m", "", ["#define A", "{KERNEL}"])\n'
    assert device_units(text)[0].text == f"\n#define A\n{KERNEL}"
    swapped = f'{IMPORT}B = "{KERNEL}"\nA = "#define A"\nload_inline("m", "", [A, B])\n'
    assert device_units(swapped)[0].text == f"\n\n#define A\n{KERNEL}"


def test_raw_strings_are_taken_as_they_are():
    text = IMPORT + "load_inline('m', '', r'''\nprintf(\"%d\\n\");\n''')"
    assert cuda_of(text) == ['\nprintf("%d\\n");\n']
    assert cuda_of(IMPORT + "load_inline('m', '', r'''\\\n''')") == ["\\\n"]
    assert 'printf("%d\\n");' in device_view(text)


def test_line_ends_of_windows_stay_where_they_are():
    text = (IMPORT + 'load_inline("m", "", """\nint a;\\\nint b;\n""")\n').replace("\n", "\r\n")
    assert cuda_of(text) == ["\nint a;int b;\n"]
    assert device_view(text).count("\r\n") == text.count("\r\n")


def test_comments_count_in_python_and_in_the_cuda_text():
    text = f'# above\n{IMPORT}load_inline("m", "", """\n{KERNEL}  // beside\n""")  # after\n"// no comment"\n'
    found = [(comment.line, comment.text, comment.alone) for comment in source_part(Language.TORCH).line_comments(text)]
    assert found == [(1, "# above", True), (4, "// beside", False), (5, "# after", False)]


PROBLEM = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_problems_and_answers():
    answer = "class ModelNew: ...\n"
    assert (is_problem(PROBLEM), is_answer(PROBLEM)) == (True, False)
    assert (is_problem(answer), is_answer(answer)) == (False, True)
    assert is_problem(PROBLEM.replace("def get_inputs(): ...", "get_inputs = list"))
    assert not is_problem(PROBLEM.replace("class Model:", "class Models:"))
    assert not is_problem(f'TEXT = """\n{PROBLEM}"""\n'), "a string is no definition"
    assert not is_answer("class Other:\n    class ModelNew: ...\n")
    assert is_problem(PROBLEM + "def unfinished(:\n")
    assert language_of(FILE, PROBLEM) is language_of(FILE, answer) is Language.TORCH
    assert find_kernels(PROBLEM, FILE) == ()
    assert language_of(FILE, "class Module: ...\n") is None


def test_triton_kernels_make_an_answer_a_triton_file():
    text = "import triton\n@triton.jit\ndef k(x): ...\nclass ModelNew: ...\n"
    assert language_of(FILE, text) is Language.TRITON
    assert is_answer(text)


def test_a_python_file_that_speaks_of_no_kernel_is_never_parsed(monkeypatch):
    """An editor asks with every keystroke, of every Python file that it has open."""

    def refuse(*_):
        raise AssertionError("a tree was made")

    for module in (findings, modules, triton):
        monkeypatch.setattr(module, "parse_python", refuse)
    text = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x\n"
    assert (language_of(FILE, text), find_kernels(text, FILE), findings.find_findings(text, FILE)) == (None, (), ())
    with pytest.raises(AssertionError):
        find_kernels(IMPORT, FILE)


def test_only_python_files_have_a_view():
    text = 'const char* s = "load_inline";'
    assert cuda_part(SourceFile(Path("k.cu"), text)).text == text
    assert cuda_part(SourceFile(FILE, text)).text.isspace()


ESCAPES = [
    r"\n",
    r"\\n",
    r"\x41",
    r"\N{BULLET}",
    "\\\n",
    "\\",
    r"\d",
    r"\77",
    r"\u00e9",
    r"\ud800",
    r"\0",
    r"\"",
    "\\é",
]
OTHERS = ["__global__ void k(int* p) { *p = 1; }", "é", "🙂", "\n", "\r\n", "'", "//", "#define A 1", "{x}", " ", "\t"]
PIECES = st.sampled_from(ESCAPES + OTHERS)
STRINGS = st.builds(
    lambda prefix, quote, parts: prefix + quote + "".join(parts) + quote,
    st.sampled_from(["", "r", "R", "f", "b", "u", "rb"]),
    st.sampled_from(['"""', "'''", '"', "'"]),
    st.lists(PIECES, max_size=8),
)
SOURCES = st.builds(lambda strings, glue: glue.join(strings), st.lists(STRINGS, min_size=1, max_size=3), st.just(" + "))
FILES = st.builds(
    lambda before, source, call, after: f"{IMPORT}{before}\nS = {source}\n{call}\n{after}",
    st.text(max_size=20).map(lambda t: t.encode(errors="ignore").decode()),
    SOURCES,
    st.sampled_from(["load_inline('m', '', S)", "load_inline('m', cuda_sources=[S, S])", "load_inline('m', 'x', S"]),
    st.sampled_from(["", "x = (", "'''", "\\"]),
)


def bare(text: str) -> str:
    """Without what may differ: blanks, NULs, and backslashes that join lines as Python's did."""
    return "".join(text.split()).replace("\0", "").replace("\\", "")


@settings(suppress_health_check=[HealthCheck.too_slow])  # of making texts, on a busy machine
@given(FILES)
def test_a_view_keeps_every_byte_and_every_line_of_any_file(text):
    view = device_view(text)
    data, seen = text.encode(), view.encode()
    assert len(data) == len(seen)
    assert [i for i, byte in enumerate(data) if byte in b"\r\n"] == [
        i for i, byte in enumerate(seen) if byte in b"\r\n"
    ]
    for unit in device_units(text):
        assert bare(unit.text) == bare("".join(cuda_of(text)))


@pytest.mark.filterwarnings("ignore:invalid escape")
@given(SOURCES)
def test_decoded_text_is_what_python_makes_of_it(source):
    try:
        wanted = eval(source, {})
    except (SyntaxError, ValueError, NameError, TypeError):
        return
    found = cuda_of(f"{IMPORT}load_inline('m', '', {source})\n")
    if found and isinstance(wanted, str):
        assert "".join(found).encode(errors="replace") == wanted.encode(errors="replace")
