"""Finds tensors that a GPU would not reach: without one, nothing else tells them from those made on `device="cuda"`.

Worker processes only.
"""

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from kernel_lsp.errors import WorkloadError

_OWN = (str(Path(torch.__file__).parent), str(Path(__file__)))
_FIX = 'Make it with device="cuda".'


class HostTensors(TorchFunctionMode):
    """Notes, while active, each tensor that is made without a device or on "cpu", and those made of such alone.

    A tensor that was moved to a device counts as the GPU's, and so does one made of several of which one is not noted:
    some are missed, and none is blamed wrongly. It is entered last, before other modes have replaced the devices named.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        made = func(*args, **named)
        results = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
        if results:
            self._note(results, getattr(func, "__name__", ""), args, named)
        return made

    def require_gpu(self, tensor: torch.Tensor, what: str, otherwise: Path) -> None:
        """Raise if a tensor is one of these.

        Raises:
            WorkloadError: it is; `what` begins the message. The place is the line that made it.
        """
        if (place := self._places.get(tensor)) is not None:
            path, line = place
            message = f"{what} is a tensor on the CPU, which a GPU cannot reach"
            raise WorkloadError(message, Path(path) if path else otherwise, line, _FIX)

    def _note(self, results: Iterable[torch.Tensor], name: str, args: Any, named: Mapping[str, Any]) -> None:
        given = [one for one in tree_leaves((args, named)) if isinstance(one, torch.Tensor)]
        place: tuple[str, int | None] | None = None
        if not given and named.get("device") in (None, "cpu"):
            place = _caller()
        elif given and not _moves(name, args, named) and all(one in self._places for one in given):
            place = self._places[given[0]]
        for result in results:
            if place is not None:
                self._places[result] = place
            elif result in self._places and _moves(name, args, named):
                del self._places[result]


def _moves(name: str, args: Any, named: Mapping[str, Any]) -> bool:
    """Return True if a call may put its result on the GPU: it says where, by a device or another tensor."""
    devices = [one for one in (*args[1:], *named.values()) if isinstance(one, (str, torch.device, torch.Tensor))]
    return name == "cuda" or named.get("device") is not None or (name == "to" and bool(devices))


def _caller() -> tuple[str, int | None]:
    """Return the file and line of the user's that called torch."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", None)
