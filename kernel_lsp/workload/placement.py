"""Running code written for `device="cuda"` where there is no GPU: the tensors are made elsewhere instead."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Instead(TorchFunctionMode):
    """While active, every request for a CUDA device is answered with `device`: `cpu`, or `meta` for shapes alone."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if _is_cuda(named.get("device")):
            named["device"] = self._device
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0].to(self._device)
        if name == "to":
            args = tuple(self._device if _is_cuda(value) else value for value in args)
        return func(*args, **named)


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")
