"""Runs code written for `device="cuda"` without a GPU: tensors are created on another device."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_SEQUENCES = 3  # dimensions: time, batch and features, in any order; packed sequences have other arguments


class Instead(TorchFunctionMode):
    """While active, replaces every CUDA device by `device`: `cpu`, or `meta` for shapes alone."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self._device = device

    def placed(self, named: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the named arguments of a function, with the other device."""
        named = dict(named or {})
        if _is_cuda(named.get("device")):
            named["device"] = self._device
        return named

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = self.placed(kwargs)
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0].to(self._device)
        if name == "to":
            args = tuple(self._device if _is_cuda(value) else value for value in args)
        if self._device == "meta" and name in _RECURRENT and args[0].dim() == _SEQUENCES:
            return _first_step(func, args, named)
        return func(*args, **named)


def _first_step(func: Any, args: Any, named: Any) -> Any:
    """Return the shapes of a recurrent layer's results from its first step; torch would compute all steps, for
    seconds.
    """
    sequence, along = args[0], int(args[-1] is True)  # its last argument is `batch_first`
    states, *last = func(sequence.narrow(along, 0, 1), *args[1:], **named)
    shape = list(states.shape)
    shape[along] = sequence.shape[along]
    return states.new_empty(shape), *last


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")
