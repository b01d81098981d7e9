"""Launches by Triton's driver are heard, and no driver is made for versions that launch nothing by it."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.runner.messages.subject_answers import HeardLaunch
from kernel_lsp.runner.workers import ears as ears_module
from kernel_lsp.runner.workers.ears import Ears

SCALED = SimpleNamespace(name="scale", num_warps=4)


class Triton:
    """Triton's drivers on a machine with a GPU; `made` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module: Any = importlib.import_module("triton.runtime.driver")
        self.made = 0
        monkeypatch.setattr(self.module, "driver", self.module.DriverConfig())
        monkeypatch.setattr(self.module, "_create_driver", self._create)
        monkeypatch.setattr(ears_module, "_is_capturing", lambda: False)  # torch for CPUs cannot say

    def _create(self) -> SimpleNamespace:
        self.made += 1
        return SimpleNamespace(launcher_cls=lambda _source, _metadata: lambda *_: None)

    def launch(self, *grid: int) -> None:
        self.module.driver.active.launcher_cls(None, SCALED)(*grid)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Triton:
    return Triton(monkeypatch)


def test_no_driver_is_made_for_a_version_without_triton(triton: Triton) -> None:
    Ears().hear_triton()
    assert triton.made == 0


@pytest.mark.parametrize("used_before", [True, False])
def test_launches_by_a_driver_are_heard_whenever_it_is_made(triton: Triton, used_before: bool) -> None:
    if used_before:
        triton.launch(1, 1, 1)
    ears = Ears()
    ears.hear_triton()
    ears.listen()
    triton.launch(3, 2, 1)
    assert triton.made == 1
    assert ears.heard() == (HeardLaunch("scale", (3, 2, 1), (128, 1, 1)),)
