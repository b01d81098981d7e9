"""Memory that torch gives unset is filled, whichever operation gave it."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from kernel_lsp.runner.workers.allocations import WatchedAllocations  # noqa: E402

WAYS: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(64),
    "empty_permuted": lambda: torch.empty_permuted((8, 8), (1, 0)),
    "resize_": lambda: torch.empty(0).resize_(64),
    "resize_as_": lambda: torch.empty(0).resize_as_(torch.zeros(64)),
    "out": lambda: torch.empty((64,), out=torch.empty(0)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unset", [0xFF, 0x11])
def test_unset_memory_is_filled(way: str, unset: int) -> None:
    used = [torch.full((64,), 3.0) for _ in range(32)]
    del used
    with WatchedAllocations(unset=unset):
        made = WAYS[way]()
    assert bool((made.reshape(-1).view(torch.uint8) == unset).all())


def test_what_a_tensor_held_stays_when_it_grows_and_guards_lie_behind_the_rest() -> None:
    with WatchedAllocations() as watcher:
        made = torch.ones(16).resize_(64)
        assert bool((made[:16] == 1).all())
        assert bool(made[16:].isnan().all())
        made.fill_(2)
        assert watcher.trampled() == ()
        made.as_strided((65,), (1,))[64] = 2
    assert [(one.side, one.element) for one in watcher.trampled()] == [("past", 64)]


class Heard:
    """Keeps what it is told of memory."""

    def __init__(self) -> None:
        self.made: list[tuple[int, bool]] = []
        self.set: list[int] = []

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Note an allocation."""
        self.made.append((tensor.numel(), initialised))

    def written(self, tensor: Tensor) -> None:
        """Note that all of a tensor was written."""
        self.set.append(tensor.numel())


def test_a_tensor_that_grows_is_not_taken_for_written() -> None:
    heard = Heard()
    with WatchedAllocations(heard):
        made = torch.empty(0).resize_(64)
        assert (heard.made, heard.set) == ([(64, False)], [])
        made.fill_(1)
    assert heard.set == [64]
