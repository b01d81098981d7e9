"""Refuses a kernel for an architecture that lacks what it uses, for which Triton's compiler would end the process.

Worker processes only. Works with Triton 3.6 and 3.7. Gluon names hardware in its operations, and its compiler has no
check: LLVM aborts where it finds no instruction. Triton's own operations compile for every architecture, but to other
code from Hopper on; `prefer` refuses them for an earlier one.
"""

import contextlib
import re
from collections.abc import Callable, Generator
from typing import Any
from unittest import mock

from triton import knobs

_SINCE = (
    (100, re.compile(r"\bttng\.(?:tmem_|tc_gen5_|tmem\b|async_tma_gather|async_tma_scatter|async_clc|clc_)\w*")),
    (90, re.compile(r"\bttng\.(?:async_tma_|warp_group_dot|fence_async|cluster_|map_to_remote|tensormap_)\w*")),
)
_ANOTHER_SINCE_HOPPER = re.compile(r"\btt\.(?:descriptor_\w+|make_tensor_descriptor|warp_specialize)|!tt\.tensordesc")
_HOPPER = 90


class ArchitectureError(Exception):
    """A kernel uses operations that came with a later architecture."""


@contextlib.contextmanager
def refusing(*, prefer: bool = False) -> Generator[None]:
    """Make Triton raise `ArchitectureError` in this block instead of ending the process.

    Args:
        prefer: True to refuse tensor descriptors and warp specialisation before Hopper too.
    """

    def inspect(*arguments: Any) -> tuple[str, str] | None:
        if not arguments:
            return "", ""  # what is added to the key of Triton's cache, which holds no refused kernel
        _, stages, _, _, capability = arguments
        first = next(iter(stages))
        stages[first] = _checked(stages[first], capability, prefer)
        return None

    with mock.patch.object(knobs.runtime, "add_stages_inspection_hook", inspect):
        yield


def _checked(stage: Callable[[Any, Any], Any], capability: int, prefer: bool) -> Callable[[Any, Any], Any]:
    def run(source: Any, metadata: Any) -> Any:
        if capability < _SINCE[0][0]:
            _check(str(source), capability, prefer)
        return stage(source, metadata)

    return run


def _check(text: str, capability: int, prefer: bool) -> None:
    for first, operations in _SINCE:
        if capability < first and (used := operations.search(text)) is not None:
            raise ArchitectureError(f"`{used[0]}` needs sm_{first} or later; this is compiled for sm_{capability}")
    if prefer and capability < _HOPPER and (used := _ANOTHER_SINCE_HOPPER.search(text)) is not None:
        raise ArchitectureError(f"`{used[0]}` is other code from sm_{_HOPPER} on; this is compiled for sm_{capability}")
