"""Shapes and element types of common operations are those that torch finds, at a much higher price."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernel_lsp.workload import shapes
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.shapes import Shapes, result_of


def made(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(size, dtype=dtype, device="cuda")


HALF, WHOLE, TRUTH = torch.float16, torch.int32, torch.bool
CALLS: dict[str, Callable[[], Any]] = {
    "randn": lambda: torch.randn(3, 4, device="cuda"),
    "randn, a tuple": lambda: torch.randn((3, 4), dtype=HALF, device="cuda"),
    "rand, by name": lambda: torch.rand(size=(5,), device="cuda:0"),
    "randint": lambda: torch.randint(0, 9, (3, 2), device="cuda"),
    "randint, a type": lambda: torch.randint(9, (3,), dtype=WHOLE, device="cuda"),
    "randn_like": lambda: torch.randn_like(made(3, dtype=HALF)),
    "arange": lambda: torch.arange(7, device="cuda"),
    "arange, steps": lambda: torch.arange(1, 8, 2, device="cuda"),
    "arange, of halves": lambda: torch.arange(0, 2, 0.5, device="cuda"),
    "normal_": lambda: made(3, 4).normal_(0.0, 2.0),
    "times a number": lambda: made(3, 4) * 2.0,
    "a number minus": lambda: 1.0 - made(3, 4),
    "a number over": lambda: 1 / made(3, dtype=WHOLE),
    "to a power": lambda: made(3, dtype=HALF) ** 2,
    "rows and columns": lambda: made(3, 1) + made(1, 4, dtype=HALF),
    "whole and half": lambda: made(3, dtype=WHOLE) * made(3, dtype=HALF),
    "whole over whole": lambda: made(3, dtype=WHOLE) / 2,
    "negative": lambda: -made(3),
    "exp": lambda: torch.exp(made(2, 2, dtype=HALF)),
    "exp of whole": lambda: made(2, dtype=WHOLE).exp(),
    "clamp": lambda: made(3, dtype=HALF).clamp(0, 1),
    "clamp, by name": lambda: made(3).clamp(min=0.0),
    "compared": lambda: made(3, 4) > 0,
    "equal": lambda: made(3, 1) == made(4),
    "where": lambda: torch.where(made(3, dtype=TRUTH), made(3, dtype=HALF), 0.0),
    "softmax": lambda: torch.softmax(made(3, 4, dtype=HALF), -1),
    "softmax, by name": lambda: torch.softmax(made(3, 4), dim=0),
    "softmax, a type": lambda: made(3, dtype=HALF).softmax(0, dtype=torch.float32),
    "log_softmax": lambda: torch.nn.functional.log_softmax(made(3, 4), dim=-1),
    "tril": lambda: torch.tril(made(4, 4, dtype=HALF), -1),
    "sorted": lambda: made(3, 4, dtype=HALF).sort(-1).values,
    "their places": lambda: torch.sort(made(3, 4), dim=0, descending=True)[1],
    "a sum": lambda: (made(3, 4) * 2).sum(0),
    "moved": lambda: torch.randn(3, 4, dtype=torch.float64).cuda() * 2,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_it_is_what_torch_makes(call: Callable[[], Tensor]) -> None:
    with Shapes():
        ours = call()
    with Instead("meta"):
        theirs = call()
    assert (ours.device.type, ours.shape, ours.dtype) == ("meta", theirs.shape, theirs.dtype)


@pytest.mark.parametrize("name", ["randn", "a number minus", "softmax", "sorted"])
def test_torch_is_not_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    usual = Instead.__torch_function__

    def ask(self: Instead, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked.append(getattr(func, "__name__", ""))
        return usual(self, func, types, args, kwargs)

    monkeypatch.setattr(Instead, "__torch_function__", ask)
    with Shapes():
        CALLS[name]()
    assert not {"randn", "sub", "__rsub__", "softmax", "sort"} & set(asked)


def test_what_is_wrong_is_said_by_torch() -> None:
    with Shapes(), pytest.raises(RuntimeError, match="broadcast"):
        _ = made(3) + made(4)
    with Shapes(), pytest.raises((TypeError, RuntimeError)):
        torch.randn("three", device="cuda")  # type: ignore[call-overload]


def test_what_lies_on_the_cpu_stays_there() -> None:
    assert result_of("randn", (3,), {}) is None
    assert result_of("mul", (torch.ones(3), 2.0), {}) is None
    with Shapes():
        assert torch.equal(torch.arange(3) * 2, torch.tensor([0, 2, 4]))
    assert shapes.result_of("mul", (torch.empty(3, device="meta"), 2.0), {"out": torch.empty(3)}) is None
