"""No kernel makes a rewrite fail: one that is none of its business is let be."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.languages.cuda import refine as cuda
from kernel_lsp.languages.triton import refine as triton
from kernel_lsp.refine.rewrites import applied, find_rewrites
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.workload.spec import workload_path

REWRITES = {Language.CUDA: cuda.REWRITES, Language.TRITON: triton.REWRITES}

TESTS = Path(__file__).parents[2]
FILES = [
    path
    for folder in (TESTS.parent / "examples", TESTS / "exploits", TESTS / "fixtures", TESTS / "kernelbench/candidates")
    for path in sorted(folder.rglob("*"))
    if path.suffix in (".cu", ".py") and path.stat().st_size < 100_000
]


def kernels_of(path: Path, text: str) -> Iterator[tuple[Candidate, Kernel]]:
    """The kernels of a text, each with the workload beside its file, if any: many rewrites ask how it is launched."""
    file, workload = SourceFile(path, text), workload_path(path)
    launch = SourceFile(workload, workload.read_text()) if workload.exists() else None
    for kernel in find_kernels(text, path):
        if path.suffix == ".cu" or kernel.language is Language.TRITON:
            yield Candidate(kernel.language, file, launch, "baseline", "baseline"), kernel


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_every_kernel_there_is(folder: Path) -> None:
    for path in FILES:
        if path.parent != folder:
            continue
        for base, kernel in kernels_of(path, path.read_text(errors="replace")):
            for rewrite in REWRITES[base.language]:
                for candidate in rewrite(base.kernel, base.launch, kernel, device_named("H100")):
                    assert (candidate.kernel, candidate.launch) != (base.kernel, base.launch), candidate.label


def test_texts_that_are_being_typed_in(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(0)
    paths = [path for path in FILES if path.parts[-2] in ("triton", "cuda", "softmax")]
    for _ in range(300):
        path = chance.choice(paths)
        text = path.read_text()
        start = chance.randrange(len(text))
        damaged = (
            text[:start] + chance.choice(["", "(", "}", "while(", ":", "\n"]) + text[start + chance.randrange(60) :]
        )
        for base, kernel in kernels_of(path, damaged):
            assert all(candidate.label for candidate in find_rewrites(base, kernel, device_named("H100")))
    assert caplog.records == []


def test_one_that_fails_is_named_and_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    text = 'extern "C" __global__ void f(float* x) { x[0] = 1.0f; }'
    [(base, kernel)] = kernels_of(Path("f.cu"), text)

    def works(*_: object) -> Iterator[Candidate]:
        yield replace(base, label="works")

    def overlaps(*_: object) -> Iterator[Candidate]:
        yield replace(base, label="first")
        text = apply_edits(base.kernel.text, [Edit(Span(0, 6), ""), Edit(Span(3, 9), "")])
        yield replace(base, kernel=SourceFile(base.kernel.path, text))

    overlaps.__module__ = "kernel_lsp.refine.rewrites.accesses.overlaps"
    found = applied([overlaps, works], base, kernel, device_named("H100"))
    assert [candidate.label for candidate in found] == ["first", "works"]
    assert [record.getMessage() for record in caplog.records] == ["the rewrite `overlaps` failed on the kernel `f`"]
