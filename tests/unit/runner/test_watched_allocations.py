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


X, Y = torch.ones(8, 8), torch.ones(8)
COMPUTING: dict[str, Callable[[], object]] = {
    "add": lambda: X + 1,
    "_softmax": lambda: torch.softmax(X, -1),
    "mm": lambda: X @ X,
    "sum": lambda: X.sum(),
    "mul_": lambda: X.mul_(1),
    "index": lambda: X[Y.long()],
    "where": lambda: torch.where(X > 0, X, X),
    "_foreach_add": lambda: torch._foreach_add([X], 1),  # pyright: ignore[reportPrivateUsage]
}
MOVING: dict[str, Callable[[], object]] = {
    "copies": lambda: (X.clone(), X.t().contiguous(), X.copy_(X), torch.cat([X, X]), X.repeat(2, 1)),
    "conversions": lambda: (X.to(torch.float64), X.half(), Y[0].item()),
    "views": lambda: (X.view(-1), X[1:], X.t(), X.expand(2, 8, 8), X.reshape(4, 16), X.unbind(), X.detach()),
    "new tensors": lambda: (torch.empty_like(X), torch.zeros_like(X), X.new_full((3,), 2.0), torch.arange(100)),
    "values set": lambda: (X.fill_(1), torch.zeros(8).zero_(), torch.nn.functional.pad(X, (0, 1))),
}


@pytest.mark.parametrize("name", COMPUTING)
def test_operations_that_compute_are_noted_with_their_elements(name: str) -> None:
    with WatchedAllocations() as watcher:
        COMPUTING[name]()
    assert dict(watcher.computed)[name] == 64


@pytest.mark.parametrize("way", MOVING)
def test_operations_that_move_values_or_make_tensors_are_not(way: str) -> None:
    with WatchedAllocations() as watcher:
        MOVING[way]()
    assert watcher.computed == []
