"""Candidates that their build alone rules out."""

import pytest

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.compiler.machine_code.binary import KernelFacts
from kernel_lsp.refine.pruning import reason_to_drop


def facts(registers: int = 32, shared: int = 0, spills: int | None = 0, most: int | None = None) -> KernelFacts:
    return KernelFacts(
        entry="k",
        name="k",
        registers=registers,
        stack_bytes=0,
        shared_bytes=shared,
        parameters=(),
        spill_store_bytes=spills,
        spill_load_bytes=spills,
        max_threads=(most, 1, 1) if most is not None else None,
    )


def launch(threads: int, shared: int = 0) -> Launch:
    return Launch("k", (1, 1, 1), (threads, 1, 1), shared)


def test_a_plain_kernel_is_worth_running() -> None:
    assert reason_to_drop("sm_90", launch(256), facts(), facts()) is None


@pytest.mark.parametrize(
    ("arch", "given", "candidate", "word"),
    [
        ("sm_90", launch(1024), facts(registers=80), "1024 threads with 80 registers"),
        ("sm_90", launch(256, shared=200_000), facts(shared=40_000), "240000 bytes of shared memory"),
        ("sm_86", launch(256), facts(shared=110_000), "gives at most 101376"),
        ("sm_90", launch(512), facts(most=256), "launch bounds of 256"),
        ("sm_90", launch(2048), facts(), "1 to 1024 threads"),
        ("sm_90", launch(256), facts(spills=16), "spills 32 bytes"),
        ("sm_999", launch(256), facts(spills=16), "spills 32 bytes"),
    ],
)
def test_what_cannot_run_or_must_be_slow_is_dropped(
    arch: str, given: Launch, candidate: KernelFacts, word: str
) -> None:
    assert word in (reason_to_drop(arch, given, candidate, facts()) or "")


def test_spills_that_the_baseline_has_too_are_no_reason() -> None:
    assert reason_to_drop("sm_90", launch(256), facts(spills=16), facts(spills=16)) is None
    assert reason_to_drop("sm_90", launch(256), facts(spills=16)) is None
    assert reason_to_drop("sm_90", launch(256), facts(spills=None), facts()) is None


def test_an_unknown_architecture_rules_nothing_else_out() -> None:
    assert reason_to_drop("sm_999", launch(1024), facts(registers=255), facts()) is None
