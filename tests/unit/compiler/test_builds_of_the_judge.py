"""What only facts do to make something compile: the judge's builds of the same text know nothing of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.cuda import build as building
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.toolchain.tools import Tool
from kernel_lsp.source.candidate import SourceFile

NESTED = """namespace lib {
namespace ops { struct Add { static __device__ float of(float x) { return x + 1; } }; }
template <typename Op> __global__ void each(float* x) { *x = Op::of(*x); }
}
"""


def _compiled(
    text: str, folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, facts: bool
) -> list[str]:
    """Return the texts that compilers are given for a file, headers' slices included."""
    seen: list[str] = []

    def compile_nvrtc(source: str, *more: Any, headers: Sequence[Any] = (), **options: Any) -> Build:
        seen.extend([source, *(header.text for header in headers)])
        return original(source, *more, headers=headers, **options)

    original = building.compile_nvrtc
    with monkeypatch.context() as patch:
        patch.setattr(building, "compile_nvrtc", compile_nvrtc)
        build_cuda(SourceFile(folder / "k.cu", text), "sm_90", names, spare_headers=facts)
    return seen


def test_names_with_a_namespace_are_looked_up_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("lib::each<ops::Add>",)
    (facts,) = _compiled(NESTED, tmp_path, names, monkeypatch, facts=True)
    (judged,) = _compiled(NESTED, tmp_path, names, monkeypatch, facts=False)
    assert judged == NESTED
    assert facts == f"{NESTED}\nusing namespace lib;"


def test_host_code_is_cut_for_facts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "struct Packed { Packed(Spec& spec) {} int x; };\nstruct Nobody { Lost x; };\n"
    (tmp_path / "packed.h").write_text(header)
    text = '#include "packed.h"\n__global__ void k(Packed x) {}\n'
    assert _compiled(text, tmp_path, (), monkeypatch, facts=False) == [text, header]
    facts = _compiled(text, tmp_path, (), monkeypatch, facts=True)
    assert facts[:3] == [text, header, text]
    assert facts[3].split() == ["struct", "Packed", "{", "int", "x;", "};"]


def test_accessors_of_pytorch_and_parts_of_cub_are_its_own_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "tool", lambda _: Tool("nvcc", None, None))
    text = """#include <cub/device/device_scan.cuh>
__global__ void k(torch::PackedTensorAccessor32<float, 1> x) { x[0] = cub::Sum()(1, 2); }
"""
    assert _compiled(text, tmp_path, (), monkeypatch, facts=False) == [text]
    whole, bare = _compiled(text, tmp_path, (), monkeypatch, facts=True)
    assert whole == text
    assert bare.splitlines()[0].strip() == ""
