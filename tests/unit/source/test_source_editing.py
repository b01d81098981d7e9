import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.editing import minimal_edits, relocate, unified_diff
from kernel_lsp.source.text import Edit, Span, apply_edits

LINES = st.lists(st.sampled_from(["a\n", "b\r\n", "ab", "ü\n", "\r", "\n", "日本語 x\n", "\r\n", "\u2028", "\f"])).map(
    "".join
)
TEXTS = LINES | st.text()


@given(TEXTS, TEXTS)
def test_edits_make_the_new_text(old: str, new: str) -> None:
    edits = minimal_edits(old, new)
    assert apply_edits(old, edits) == new
    data = old.encode()
    for edit in edits:
        assert data[edit.span.start : edit.span.end].decode() != edit.text
        for at in (edit.span.start, edit.span.end):
            assert data[max(at - 1, 0) : at + 1] != b"\r\n"


def test_edits_are_small() -> None:
    old = "// ü\nint a = 128;\nint b = 4;\nint c;\n"
    new = "// ü\nint a = 256;\nint b = 8;\nint c;\nint d;\n"
    data = old.encode()
    found = [(data[e.span.start : e.span.end], e.text) for e in minimal_edits(old, new)]
    assert found == [(b"128", "256"), (b"4", "8"), (b"", "int d;\n")]


def test_equal_texts_need_no_edit() -> None:
    assert minimal_edits("a\n", "a\n") == ()
    assert unified_diff("a\n", "a\n", Path("a")) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nc"),
        ("a\n\fb\u2028c\nd\n", "a\n\fb\u2028C\nd\n"),
        ("", "a\n"),
    ],
)
def test_diff_can_be_applied(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(old.encode())
    diff = unified_diff(old, new, Path("k.cu"))
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert path.read_bytes() == new.encode()


JUDGED = """#define BLOCK 128
// größer
__global__ void scale(float* x) {
  x[threadIdx.x * BLOCK] *= 2;
}
__global__ void other(float* x) {
  x[0] = 1;
}
void run() { scale<<<1, BLOCK>>>(nullptr); }
"""
CANDIDATE = JUDGED.replace("*= 2", "*= 2.f").replace("BLOCK 128", "BLOCK 256")


def relocated(current: str, judged: str = JUDGED, candidate: str = CANDIDATE) -> str | None:
    kernel = find_cuda_kernels(judged, Path("k.cu"))[0]
    edits = relocate(minimal_edits(judged, candidate), judged, current, [kernel])
    return None if edits is None else apply_edits(current, edits)


def test_relocate_in_the_same_text() -> None:
    assert relocated(JUDGED) == CANDIDATE


def test_relocate_after_lines_were_added_elsewhere() -> None:
    def add(text: str) -> str:
        return "// neu: 日本\n" + text.replace("void run", "// more\n\nvoid run")

    assert relocated(add(JUDGED)) == add(CANDIDATE)


def test_relocate_a_kernel_that_moved_below_another() -> None:
    def swap(text: str) -> str:
        start, end, after = (text.index(w) for w in ("__global__ void scale", "__global__ void other", "void run"))
        return text[:start] + text[end:after] + text[start:end] + text[after:]

    assert relocated(swap(JUDGED)) == swap(CANDIDATE)


@pytest.mark.parametrize(
    ("was", "now"), [("*= 2;", "*= 3;"), ("float* x) {\n  x[t", "float *x) {\n  x[t"), ("BLOCK 128", "BLOCK 64")]
)
def test_relocate_refuses_what_changed(was: str, now: str) -> None:
    assert relocated(JUDGED.replace(was, now)) is None


def test_relocate_refuses_a_kernel_that_is_gone() -> None:
    assert relocated("") is None
    assert relocated(JUDGED[: JUDGED.index("__global__")]) is None


def test_relocate_finds_its_own_of_two_equal_lines() -> None:
    judged = "#if A\nint n = 1;\n#else\nint n = 1;\n#endif\n__global__ void k() {}\n"
    candidate = judged.replace("#else\nint n = 1", "#else\nint n = 2")
    assert relocated("// new\n" + judged, judged, candidate) == "// new\n" + candidate


@given(st.text(alphabet="ab\n", max_size=8), st.text(alphabet="ab\n", max_size=8))
def test_relocate_only_moves_edits(before: str, after: str) -> None:
    result = relocated(f"{before}\n{JUDGED}{after}")
    assert result == f"{before}\n{CANDIDATE}{after}"


def test_relocate_keeps_an_insertion_at_the_end() -> None:
    kernel = find_cuda_kernels(JUDGED, Path("k.cu"))[0]
    end = len(JUDGED.encode())
    edits = relocate([Edit(Span(end, end), "// end\n")], JUDGED, "// new\n" + JUDGED, [kernel])
    assert edits is not None
    assert apply_edits("// new\n" + JUDGED, edits) == "// new\n" + JUDGED + "// end\n"
