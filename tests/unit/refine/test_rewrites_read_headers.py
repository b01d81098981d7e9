"""Names of types that headers beside a kernel's file define."""

from pathlib import Path

import pytest

from kernel_lsp.device.choice import target_device
from kernel_lsp.refine.rewrites.accesses.vectorize import rewrite
from kernel_lsp.source.candidate import SourceFile
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


def labels(folder: Path) -> list[str]:
    file = SourceFile(folder / "scale.cu", KERNEL)
    (kernel,) = find_kernels(file.text, file.path)
    return [candidate.label for candidate in rewrite(file, None, kernel, target_device(None, ("sm_90",)))]


@pytest.mark.parametrize("place", ["common.h", "types/all.h"])
def test_elements_are_loaded_by_vectors_if_a_header_says_what_they_are(place: str, tmp_path: Path):
    assert labels(tmp_path) == []
    if place != "common.h":
        (tmp_path / "types").mkdir()
        (tmp_path / "common.h").write_text(f'#pragma once\n#include "{place}"\n')
    header = tmp_path / place
    header.write_text(TYPES.format("struct { float a, b, c; }"))
    assert labels(tmp_path) == []
    header.write_text(TYPES.format("float") + "// changed\n")
    assert labels(tmp_path) == ["128-bit loads and stores"]


def test_headers_that_include_each_other_are_read_once(tmp_path: Path):
    (tmp_path / "common.h").write_text('#include "other.h"\n')
    (tmp_path / "other.h").write_text(f'#include "common.h"\n{TYPES.format("float")}')
    assert labels(tmp_path) == ["128-bit loads and stores"]
