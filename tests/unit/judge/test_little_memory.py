"""Where the GPU has too little memory free, one line says so, whoever asked for it."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.errors import UnjudgedError, unattributed
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.target import make_target
from kernel_lsp.runner.messages.oracle import Probe
from kernel_lsp.runner.protocol import WorkerFailure

SAXPY = Path(__file__).parents[3] / "examples" / "cuda" / "saxpy.cu"
OF_TORCH = WorkerFailure("OutOfMemoryError", "CUDA out of memory. Including non-PyTorch memory, process 17 has 9 GiB")
OF_THE_DRIVER = WorkerFailure("CudaError", "memory: CUDA_ERROR_OUT_OF_MEMORY")
OTHER = WorkerFailure("CudaError", "launch: CUDA_ERROR_ILLEGAL_ADDRESS")


class Oracle:
    """Fails whatever it is asked."""

    def __init__(self, failure: WorkerFailure) -> None:
        self._failure = failure

    async def ask(self, _request: object, *, deadline: float) -> Any:
        raise self._failure

    def kill(self) -> None:
        """It is not asked again after some failures."""


@pytest.mark.parametrize(
    ("failure", "lacks", "driver"), [(OF_TORCH, True, False), (OF_THE_DRIVER, True, True), (OTHER, False, False)]
)
def test_a_failure_knows_who_lacked_memory(failure: WorkerFailure, lacks: bool, driver: bool) -> None:
    assert (failure.lacks_memory, failure.driver_lacks_memory) == (lacks, driver)


@pytest.mark.parametrize("failure", [OF_TORCH, OF_THE_DRIVER])
def test_the_oracle_lists_no_processes(failure: WorkerFailure) -> None:
    message = "a check could not be made (Probe): this GPU has too little memory free"
    assert what_the_oracle_says(failure) == message


def test_another_failure_of_the_oracle_is_told_in_full() -> None:
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in what_the_oracle_says(OTHER)


def test_nor_does_a_version_that_nobody_is_to_blame_for() -> None:
    with pytest.raises(UnjudgedError, match=r"this GPU has too little memory free$"), unattributed():
        raise OF_TORCH


def what_the_oracle_says(failure: WorkerFailure) -> str:
    """The error of a harness whose oracle fails."""
    harness = Harness(cast(Any, None), make_target(SAXPY), Settings(), cast(Any, None), None)
    harness._oracle = cast(Any, Oracle(failure))
    with pytest.raises(UnjudgedError) as raised:
        asyncio.run(harness.oracle(Probe()))
    return str(raised.value)
