"""Names of types that headers beside a kernel's file define."""

from pathlib import Path

import pytest

from kernel_lsp.device.choice import target_device
from kernel_lsp.refine.rewrites.accesses.vectorize import rewrite
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels

KERNEL = """
#include "common.h"
__global__ void scale(element* y, const element* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 2.0f * x[i];
    }
}
"""
TYPES = """
#if defined(HALF)
typedef __half element;
#else
typedef {} element;
#endif
"""


def candidates(folder: Path, text: str) -> list[Candidate]:
    file = SourceFile(folder / "scale.cu", text)
    (kernel,) = find_kernels(file.text, file.path)
    return list(rewrite(file, None, kernel, target_device(None, ("sm_90",))))


def labels(folder: Path, text: str = KERNEL) -> list[str]:
    return [candidate.label for candidate in candidates(folder, text)]


def rewritten(folder: Path, text: str) -> list[str]:
    return [candidate.kernel.text for candidate in candidates(folder, text)]


@pytest.mark.parametrize("place", ["common.h", "types/all.h"])
def test_elements_are_loaded_by_vectors_if_a_header_says_what_they_are(place: str, tmp_path: Path):
    assert labels(tmp_path) == []
    if place != "common.h":
        (tmp_path / "types").mkdir()
        (tmp_path / "common.h").write_text(f'#pragma once\n#include "{place}"\n')
    header = tmp_path / place
    header.write_text(TYPES.format("struct { float a, b, c; }"))
    assert labels(tmp_path) == []
    header.write_text(f"#ifndef TYPES\n#define TYPES\n{TYPES.format('float')}#endif\n")
    assert labels(tmp_path) == ["128-bit loads and stores"]


def test_headers_that_include_each_other_are_read_once(tmp_path: Path):
    (tmp_path / "common.h").write_text('#include "other.h"\n')
    (tmp_path / "other.h").write_text(f'#include "common.h"\n{TYPES.format("float")}')
    assert labels(tmp_path) == ["128-bit loads and stores"]


BRANCHES = """
#ifdef WIDE
typedef struct { float a, b, c; } element;
#else
typedef float element;
#endif
"""


@pytest.mark.parametrize("place", ["kernel", "header"])
@pytest.mark.parametrize("before", ["HALF", "WIDE"])
def test_branches_that_macros_choose_say_what_a_type_is(place: str, before: str, tmp_path: Path):
    types = TYPES.format("float") if before == "HALF" else BRANCHES
    kernel, header = (KERNEL + types, "") if place == "kernel" else (KERNEL, types)
    (tmp_path / "common.h").write_text(header)
    assert labels(tmp_path, kernel) == ["128-bit loads and stores"]
    (found,) = rewritten(tmp_path, kernel)
    assert "float4" in found
    narrow = rewritten(tmp_path, f"#define {before}\n{kernel}")
    assert not any("float4" in one for one in narrow)
    (tmp_path / "common.h").write_text(f"#define {before} 1\n{header}")
    assert rewritten(tmp_path, kernel) == [one.removeprefix(f"#define {before}\n") for one in narrow]


def test_a_type_of_several_meanings_is_none_that_is_known(tmp_path: Path):
    (tmp_path / "common.h").write_text(TYPES.format("float").replace("defined(HALF)", "PRECISION == 16"))
    assert labels(tmp_path) == []
