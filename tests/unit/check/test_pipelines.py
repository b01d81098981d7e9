"""A pipeline's stages are held against what the memory has under way, and too few of them are said at their line."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp import check as checking
from kernel_lsp.check.hints import pipeline_hints
from kernel_lsp.check.pipelines import Pipeline, in_flight, pipeline_of
from kernel_lsp.check.profile import profile_of
from kernel_lsp.compiler.machine_code.occupancy import occupancy
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.emulation import EmulatedRun
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.report.profile import pipeline_sentences
from kernel_lsp.runner.emulated import FilledRing, KernelTotals, WarpRegisters
from kernel_lsp.source.candidate import SourceFile

H200 = device_named("H200")
PATH = Path("k.cu").absolute()
SOURCE = SourceFile(PATH, "__global__ void f() {\n    fill();\n    fill_other();\n}\n")
KIB = 1024


def totals(*rings: FilledRing, blocks: int = 4, registers: tuple[WarpRegisters, ...] = ()) -> KernelTotals:
    return KernelTotals("f", 1, blocks, {}, 0, 0, False, rings, registers)


def ring(stages: int, kib: float, *, fills: int = 1000, line: int = 2) -> FilledRing:
    return FilledRing(str(PATH), line, stages, int(kib * KIB), fills)


def resources(shared_kib: float, threads: int = 384) -> KernelResources:
    shared = int(shared_kib * KIB)
    share = occupancy("sm_90", 64, shared, threads).share
    return KernelResources(
        name="f",
        registers=64,
        shared_bytes=shared,
        spill_bytes=0,
        stack_bytes=0,
        threads=threads,
        occupancy=share,
        limiter=None,
    )


def pipeline(*rings: FilledRing, shared_kib: float, blocks: int = 4) -> Pipeline:
    return pipeline_of("f", [totals(*rings, blocks=blocks)], [resources(shared_kib)], H200)


def test_bytes_in_flight_are_those_of_all_rings_and_resident_blocks() -> None:
    found = pipeline(ring(2, 8), ring(2, 4, line=3), shared_kib=40)
    assert found.resident == 2, "64 registers a thread leave room for two blocks of 384 threads"
    assert found.flight_bytes == 2 * (2 * 8 + 2 * 4) * KIB
    assert found.wanted_bytes == int(4800e9 * 1e-6 / 132)
    assert found.stage_bytes == 12 * KIB
    assert found.further_stages == (228 - 2 * 41) // 24


@pytest.mark.parametrize(
    ("rings", "shared_kib", "shallow"),
    [
        ([ring(2, 4)], 100, True),  # 16 KiB of 35 in flight, and room for more
        ([ring(4, 16)], 100, False),  # enough
        ([ring(3, 4)], 100, False),  # more than half of it
        ([ring(1, 4, fills=4)], 100, False),  # each block fills it once
        ([ring(2, 4)], 113, False),  # no room for a third stage in each of two blocks
        ([], 100, False),
    ],
)
def test_a_pipeline_is_shallow_where_another_stage_would_help(
    rings: list[FilledRing], shared_kib: float, shallow: bool
) -> None:
    found = pipeline(*rings, shared_kib=shared_kib)
    assert found.is_shallow is shallow
    run = EmulatedRun("n=1", "normal", 4, totals=(totals(*rings),))
    hints = pipeline_hints(SOURCE, [run], [resources(shared_kib)], H200)
    assert [(hint.code, hint.line) for hint in hints] == ([("KL038", 2)] if shallow else [])


def test_what_limits_a_pipeline_is_said() -> None:
    assert "8 more stages fit into shared memory" in in_flight(
        replace(pipeline(ring(2, 1), shared_kib=105), spare_bytes=16 * KIB)
    )
    assert "no further stage fits" in in_flight(pipeline(ring(2, 4), shared_kib=113))
    assert in_flight(pipeline(ring(4, 16), shared_kib=100)).endswith("where the memory of H200 needs 36")


def test_a_ring_in_another_file_gives_no_hint() -> None:
    run = EmulatedRun("n=1", "normal", 4, totals=(totals(replace(ring(2, 4), path="/lib/tiles.cuh")),))
    assert pipeline_hints(SOURCE, [run], [resources(100)], H200) == []


def test_registers_of_warps_are_said() -> None:
    given = (WarpRegisters(str(PATH), 2, 40, 4), WarpRegisters(str(PATH), 3, 232, 8))
    found = pipeline_of("f", [totals(registers=given)], [resources(100)], H200)
    assert pipeline_sentences(found) == [
        "Registers of warps: 40 a thread from line 2 on, of others 232 a thread from line 3 on."
    ]


def test_a_profile_tells_the_stages_of_the_product_for_hopper() -> None:
    path = Path(__file__).parents[3] / "examples/cuda/wgmma_gemm.cu"
    [source] = checking.find_kernel_files([path])
    [report] = asyncio.run(checking.check([source], Settings()))
    (kernel,) = profile_of(report, source.text, device_named("H100")).kernels
    assert kernel.pipeline is not None
    line = next(n for n, text in enumerate(source.text.splitlines(), 1) if "arrive_expecting(&shared.full" in text)
    assert pipeline_sentences(kernel.pipeline) == [
        f"Line {line}: 4 stages of 48 KiB of shared memory.",
        "Together 192 KiB in flight on a multiprocessor, where the memory of H100 needs 25.",
    ]
