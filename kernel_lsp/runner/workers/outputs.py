"""Outputs of launches: which are valid, where they lie, and who else references their memory. Worker processes only."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, UntypedStorage

from kernel_lsp import policy
from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.leaves import returned_leaves


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """The place of an output that has no memory of its own, as text for people; empty if it has."""

    text: str = ""
    in_inputs: bool = False


class HeldOutputs:
    """The outputs of the last runs, kept so that a later run that overwrites one of them is noticed."""

    def __init__(self, memory: float) -> None:
        """Keep as many outputs as fit into a share of `memory` bytes."""
        self._room = policy.HELD_OUTPUTS_MEMORY_SHARE * memory
        self._held: list[tuple[int, tuple[Tensor, ...]]] = []  # oldest first, each with the number of its run
        self._runs = 0

    def add(self, outputs: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Keep the outputs of a run; return for each kept run how many runs ago it was."""
        self._runs += 1
        self._held = [*self._held[-policy.HELD_OUTPUTS + 1 :], (self._runs, outputs)]
        while len(self._held) > 2 and sum(t.nbytes for _, held in self._held for t in held) > self._room:
            del self._held[1]
        return tuple(self._runs - run for run, _ in self._held)

    def earlier(self, back: int) -> tuple[Tensor, ...]:
        """Return the outputs of the run `back` runs before the last one."""
        return next(outputs for run, outputs in self._held if run == self._runs - back)

    def spoil(self) -> None:
        """Fill all of them with 0xFF, so that none can pass for the answer to a later run."""
        for output in (output for _, outputs in self._held for output in outputs):
            memory = torch.empty(0, dtype=torch.uint8, device=output.device).set_(output.untyped_storage())
            memory.fill_(policy.POISON_BYTE)

    def forget(self) -> tuple[int, ...]:
        """Release all outputs; return the numbers of those whose memory is still referenced elsewhere.

        A version that keeps an output can overwrite it later, or return it again.
        """
        storages = [(number, o.untyped_storage()) for _, outputs in self._held for number, o in enumerate(outputs)]
        self._held.clear()
        return tuple(sorted({number for number, storage in storages if _users(storage) > _LONE}))


def plain_outputs(returned: object, device: str, path: Path) -> tuple[Tensor, ...]:
    """Return the outputs in what a launch returned, each a plain tensor on `device` without a history.

    Raises:
        WorkloadError: something in it is none, naming the file at `path`.
    """
    found: list[Tensor] = []
    for number, output in enumerate(returned_leaves(returned)):
        if type(output) is not Tensor:
            raise WorkloadError(
                f"`launch` returned a {type(output).__name__} as output {number}, not a plain tensor",
                path,
                fix="Return the output tensor, or a tuple of output tensors.",
            )
        if output.device.type != device:
            raise WorkloadError(f"output {number} of `launch` is on {output.device}", path)
        if (why := _not_plain(output)) is not None:
            raise WorkloadError(f"output {number} of `launch` {why}", path, fix="Return a plain tensor.")
        found.append(output.detach())
    return tuple(found)


def places_of(outputs: Sequence[Tensor], inputs: Tensor) -> tuple[OutputPlace, ...]:
    """Return the places of outputs that share bytes with the `inputs` or with an earlier output."""
    first = inputs.data_ptr()
    earlier: list[tuple[int, int]] = []
    places: list[OutputPlace] = []
    for output in outputs:
        start, end = _range(output)
        into = start - first
        if start < end and start < first + inputs.numel() and end > first:
            places.append(OutputPlace(f"byte {into} of the inputs", in_inputs=True))
        else:
            shared = next((n for n, (a, b) in enumerate(earlier) if start < b and a < end), None)
            text = "" if shared is None else f"byte {start - earlier[shared][0]} of the memory of output {shared}"
            places.append(OutputPlace(text))
        earlier.append((start, end))
    return tuple(places)


def _range(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte past its last; equal if it has no elements."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.itemsize


def _not_plain(output: Tensor) -> str | None:
    """Return why the bytes of a tensor are not its values, None if they are."""
    if output.layout is not torch.strided or output.is_quantized:
        return f"is stored as {output.layout}"
    if output.is_conj() or output.is_neg():
        return "is a view that computes when it is read"
    if output.numel() and not output.data_ptr():
        return "has no memory"
    return "carries attributes of its own" if vars(output) else None


def _users(storage: UntypedStorage) -> int:
    return torch._C._storage_Use_Count(storage._cdata)  # pyright: ignore


_LONE = _users(torch.empty(1).untyped_storage())  # the count if nothing else holds the storage
