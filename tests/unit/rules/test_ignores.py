"""Comments that silence findings: where they reach, and what is said of those that are wrong."""

from pathlib import Path

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.rules.catalog import find_rule, require_silenceable
from kernel_lsp.rules.ignores import find_ignores, silence
from kernel_lsp.rules.rule import Needs
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part

CUDA = """\
// kernel-lsp: ignore[KL040] grown on purpose
template <int N>
__global__ void __launch_bounds__(256)
copy(const float* x,
     float* y) {
    y[threadIdx.x] = x[threadIdx.x * N];  // kernel-lsp: ignore[KL030, KL031] a transpose
    // kernel-lsp: ignore[KL010]

    // another comment
    y[0] = x[1];
    const char* s = "// kernel-lsp: ignore[KL011]";
}
"""


def ignores(text: str, language=Language.CUDA):
    kernels = find_kernels(text, Path("k.cu" if language is Language.CUDA else "k.py"))
    return find_ignores(text, source_part(language).line_comments(text), kernels)


def left(text: str, *findings, done=tuple(Needs), language=Language.CUDA) -> list[tuple[str | None, int]]:
    kept, _ = silence(findings, ignores(text, language), "k", done)
    return [(found.code, found.line) for found in kept]


def at(rule: str, line: int):
    return find_rule(rule).at("k", line, "found")


def test_what_each_comment_speaks_for():
    found = [(i.rule, i.line, i.speaks_for, i.reason) for i in ignores(CUDA)]
    assert found == [
        ("KL040", 1, (2, 5), "grown on purpose"),
        ("KL030", 6, (6, 6), "a transpose"),
        ("KL031", 6, (6, 6), "a transpose"),
        ("KL010", 7, (10, 10), ""),
    ]
    line = CUDA.splitlines()[5]
    assert [line[i.column - 1 : i.end_column - 1] for i in ignores(CUDA)[1:3]] == ["KL030", "KL031"]


def test_findings_are_silenced_in_their_place_only():
    everything = [at("KL040", 4), at("KL030", 6), at("KL031", 6), at("KL010", 10)]
    kept, silenced = silence(everything, ignores(CUDA), "k", tuple(Needs))
    assert kept == []
    assert [one.reason for one in silenced] == ["grown on purpose", "a transpose", "a transpose", ""]
    assert ("KL030", 10) in left(CUDA, *everything, at("KL030", 10))
    assert ("KL012", 6) in left(CUDA, *everything, at("KL012", 6))


@pytest.mark.parametrize("language", Language)
def test_a_comment_for_the_file(language):
    mark = "//" if language is Language.CUDA else "#"
    text = f"a = 1\n{mark} kernel-lsp: ignore-file[KL035] bytes\nb = 2\n"
    assert left(text, at("KL035", 1), at("KL035", 3), language=language) == []
    assert left(text, language=language) == [("KL050", 2)]


def test_python_strings_are_no_comments():
    mark = "# kernel-lsp: ignore[KL030]"
    text = f'"""\n{mark}\n"""\ns = "{mark}"\nx = 1  {mark}\n'
    assert [i.line for i in ignores(text, Language.TRITON)] == [5]


def test_an_unused_ignore_is_reported_where_its_rule_could_have_spoken():
    text = "x;  // kernel-lsp: ignore[KL010]\n"
    assert left(text) == [("KL050", 1)]
    assert left(text, done=(Needs.COMPILING,)) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KL999", "`KL999` is not a rule"),
        ("bank-conflict", "write KL031"),
        ("kl031", "write KL031"),
        ("KL001", "`KL001` cannot be silenced"),
    ],
)
def test_an_unknown_rule_is_reported(name, words):
    kept, silenced = silence([at("KL001", 1)], ignores(f"x;  // kernel-lsp: ignore[{name}]\n"), "k", ())
    assert [found.code for found in kept] == ["KL001", "KL051"]
    assert words in kept[1].message
    assert silenced == []


def test_crlf_and_bytes():
    text = "/* ü */ x;  // kernel-lsp: ignore[KL030] ü\r\n// kernel-lsp: ignore[KL031]\r\n\r\ny;\r\n"
    first, second = ignores(text)
    assert (first.column, first.reason) == (len("/* ü */ x;  // kernel-lsp: ignore[".encode()) + 1, "ü")
    assert second.speaks_for == (4, 4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KL001", "cannot be silenced"),
        ("KL999", "There is no rule"),
        ("kl035", "Write KL035"),
        ("bank-conflict", "Write KL031"),
    ],
)
def test_the_settings_silence_no_error_of_the_compiler_and_no_unknown_rule(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        require_silenceable(["KL035", name])


def test_the_settings_silence_other_rules() -> None:
    require_silenceable(["KL010", "KL035"])
