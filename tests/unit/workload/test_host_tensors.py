"""Tensors that a GPU would not reach, found where there is none."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.host_tensors import HostTensors
from kernel_lsp.workload.placement import Instead
from tests.scale_kernel import KERNEL, WORKLOAD

Make = Callable[[], torch.Tensor]


def is_found(make: Make) -> bool:
    host = HostTensors()
    with Instead(), host:
        made = make()
    try:
        host.require_gpu(made, "it", Path("nowhere"))
    except WorkloadError as error:
        return error.path == Path(__file__)
    return False


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: torch.zeros(3, device="cpu"),
        lambda: torch.arange(6).reshape(2, 3).t() * 2,
        lambda: torch.randn(3).to(torch.float16),
        lambda: torch.ones(4).chunk(2)[1],
    ],
)
def test_what_is_made_without_a_device_and_all_that_is_made_of_it(make: Make) -> None:
    assert is_found(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, device="cuda"),
        lambda: torch.randn(3).cuda(),
        lambda: torch.randn(3).to("cuda"),
        lambda: torch.randn(3).to(torch.ones(1, device="cuda").device),
        lambda: torch.randn(3).to(torch.ones(1, device="cuda")),
        lambda: torch.empty_like(torch.ones(1, device="cuda")),
        lambda: torch.empty(3, device=torch.ones(1, device="cuda").device),
        lambda: torch.ones(3, device="cuda") * torch.tensor(2.0),
        lambda: torch.ones(3, device="cuda").copy_(torch.ones(3)),
        lambda: torch.nn.Linear(3, 3).cuda().weight,
    ],
)
def test_what_a_gpu_reaches_is_blamed_in_no_way_of_making_it(make: Make) -> None:
    assert not is_found(make)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('torch.randn(n, device="cuda")', "torch.randn(n)", "what `inputs` made for case n=100"),
        ("torch.empty_like(x)", "torch.empty(x.shape)", "argument `y` of `scale`"),
    ],
)
def test_a_workload_that_would_fail_on_a_gpu_fails_without_one(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert old in WORKLOAD
    kernel, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    kernel.write_text(KERNEL)
    workload.write_text(WORKLOAD.replace(old, new))
    [report] = asyncio.run(check([read_source(kernel)], Settings()))
    [found] = [one for one in report.diagnostics if one.code == "KL022"]
    assert found.message == f'{what} is a tensor on the CPU, which a GPU cannot reach. Make it with device="cuda".'
    at = WORKLOAD[: WORKLOAD.index(old)].count("\n") + 1
    assert (Path(found.path).name, found.line) == (workload.name, at)
