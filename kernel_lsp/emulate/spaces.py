"""Loads, stores and atomic updates by state space; the space of a generic address follows from its value.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import access
from kernel_lsp.emulate.access import (
    chosen_by,
    load_global,
    load_local,
    load_shared,
    spread_out,
    store_global,
    store_local,
    store_shared,
)
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import CLUSTER_BLOCKS, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from kernel_lsp.emulate.remote import load_cluster, store_cluster, update_places

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_CLUSTER_END = SHARED_WINDOW + (1 + CLUSTER_BLOCKS) * WINDOW_BYTES


def by_space(addresses: Array, lanes: Lanes) -> list[tuple[str, Lanes]]:
    """Return the spaces in which generic addresses lie, each with the lanes that address it."""
    chosen = chosen_by(addresses, lanes)
    low, high = int(chosen.min()), int(chosen.max())
    if high < SHARED_WINDOW:
        return [("global", lanes)]
    if low >= SHARED_WINDOW and high < SHARED_WINDOW + WINDOW_BYTES:
        return [("shared", lanes)]
    if low >= LOCAL_WINDOW and high < LOCAL_WINDOW + WINDOW_BYTES:
        return [("local", lanes)]
    found: list[tuple[str, Lanes]] = []
    rest: Lanes | None = lanes
    whole = np.zeros(lanes.extent, np.int64)
    lanes.write(whole, addresses)
    for name, window, end in (
        ("shared", SHARED_WINDOW, SHARED_WINDOW + WINDOW_BYTES),
        ("cluster", SHARED_WINDOW, _CLUSTER_END),
        ("local", LOCAL_WINDOW, LOCAL_WINDOW + WINDOW_BYTES),
    ):
        if rest is not None:
            here = rest.read(whole)
            inside, rest = rest.where((here >= window) & (here < end))
            if inside is not None:
                found.append((name, inside))
    if rest is not None:
        found.append(("global", rest))
    return found


def load(
    resident: Resident,
    space: str,
    addresses: Array,
    kind: np.dtype[Any],
    vector: int,
    lanes: Lanes,
    site: Site,
    strong: bool = False,
) -> list[Array]:
    """Load from `global`, `shared`, `local` or, with an empty name, from the spaces of generic addresses."""
    if space == "global":
        return load_global(resident, addresses, kind, vector, lanes, site, strong)
    if space == "shared":
        return load_shared(resident, addresses, kind, vector, lanes, site, strong)
    if space == "local":
        return load_local(resident, addresses, kind, vector, lanes, site)
    if space == "cluster":
        return load_cluster(resident, addresses, kind, vector, lanes, site)
    found = by_space(addresses, lanes)
    if len(found) == 1:
        name, part = found[0]
        return load(resident, name, addresses - _window(name), kind, vector, part, site, strong)
    whole = spread_out(addresses, lanes)
    parts = [np.zeros(lanes.extent, kind) for _ in range(vector)]
    for name, part in found:
        loaded = load(resident, name, part.read(whole) - _window(name), kind, vector, part, site, strong)
        for target, value in zip(parts, loaded, strict=True):
            part.write(target, value)
    return [lanes.read(part) for part in parts]


def store(
    resident: Resident,
    space: str,
    addresses: Array,
    values: list[Array],
    lanes: Lanes,
    site: Site,
    strong: bool = False,
) -> None:
    """Store to `global`, `shared`, `local` or, with an empty name, to the spaces of generic addresses."""
    if space == "global":
        store_global(resident, addresses, values, lanes, site, strong)
    elif space == "shared":
        store_shared(resident, addresses, values, lanes, site, strong)
    elif space == "local":
        store_local(resident, addresses, values, lanes, site)
    elif space == "cluster":
        store_cluster(resident, addresses, values, lanes, site)
    elif space:
        raise NeedsGpu(f"store to .{space}")
    else:
        found = by_space(addresses, lanes)
        whole = spread_out(addresses, lanes) if len(found) > 1 else addresses
        for name, part in found:
            mine = part.read(whole) if len(found) > 1 else addresses
            parts = [part.read(spread_out(v, lanes)) if len(found) > 1 else v for v in values]
            store(resident, name, mine - _window(name), parts, part, site, strong)


def cells(
    resident: Resident, space: str, addresses: Array, size: int, lanes: Lanes, site: Site
) -> list[tuple[Lanes, Array, Array]]:
    """Return the memory that atomic accesses update: the lanes, the elements of `size` bytes, and their indices."""
    if space == "cluster":
        return update_places(resident, addresses, size, lanes, site)
    return access.cells(resident, space, addresses, size, lanes, site)


def _window(name: str) -> int:
    return {"shared": SHARED_WINDOW, "cluster": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(name, 0)
