"""Tells from calls in a Gluon function which of its parameters are layouts and tensor descriptors."""

import ast
from collections.abc import Callable
from typing import Protocol

_BY_TENSOR_MAP = frozenset(("async_copy_global_to_shared", "async_copy_shared_to_global", "async_load", "async_store"))
_SHAPED = frozenset(("zeros", "full"))


class HardwareUses(Protocol):
    """Parameters with their numbers of dimensions: see `triton_uses.Uses`."""

    descriptors: dict[str, int]
    layouts: dict[str, int]
    shared_layouts: dict[str, int]


def note_hardware(call: ast.Call, name: str, direct: Callable[[ast.expr], set[str]], found: HardwareUses) -> None:
    """Add the layouts and descriptors among the arguments of a call to `found`.

    Args:
        call: the call.
        name: the last part of the called function's name.
        direct: returns the parameters that an expression is.
        found: gets them.
    """
    given = {k.arg: k.value for k in call.keywords if k.arg}
    last = call.args[-1:]
    if name in _BY_TENSOR_MAP and len(call.args) > 1:
        for one in direct(call.args[0]):
            found.descriptors[one] = _rank(call.args[1], 2)
    if name == "SliceLayout":
        for parent in (given["parent"],) if "parent" in given else last:
            _raise(found.layouts, direct(parent), 2)
    elif name == "allocate_shared_memory":
        shape = given.get("shape", call.args[1] if len(call.args) > 1 else None)
        for layout in (given["layout"],) if "layout" in given else last:
            _raise(found.shared_layouts, direct(layout), _rank(shape, 2))
    elif "layout" in given:
        shape = call.args[0] if call.args and name in _SHAPED else None
        _raise(found.layouts, direct(given["layout"]), _rank(shape, 1))


def _rank(shape: ast.expr | None, usual: int) -> int:
    """Return the number of extents that are listed; the usual number if none are."""
    return len(shape.elts) if isinstance(shape, (ast.List, ast.Tuple)) else usual


def _raise(ranks: dict[str, int], names: set[str], rank: int) -> None:
    for name in names:
        ranks[name] = max(rank, ranks.get(name, 0))
