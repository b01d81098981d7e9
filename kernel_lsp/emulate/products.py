"""Finds instructions that use the sums of `wgmma` before the product has been waited for.

Worker-only: imports numpy. The registers of a product are written at some time until `wgmma.wait_group`; the PTX ISA
leaves undefined what any instruction but another `wgmma` sees there. Compilers copy registers from round to round of a
loop, so a copy is as unready as what it copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.registers import Activation

if TYPE_CHECKING:
    from kernel_lsp.emulate.decode import Decoded
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Unready:
    """The registers of a product under way.

    Attributes:
        due: the group of `wgmma` that it is part of, (blocks, warps); 0 for warps that did not ask for it.
        site: the last instruction that did.
    """

    due: Array
    site: Site


def begin(activation: Activation, slots: tuple[int, ...], due: Array, warps: tuple[Array, Array], site: Site) -> None:
    """Mark the registers `slots` of these warps (rows and numbers) as those of a product of the groups `due`."""
    known = activation.unready.get(slots[0])
    whole: Array = np.zeros_like(due) if known is None else known.due.copy()
    whole[warps] = due[warps]
    activation.unready.update(dict.fromkeys(slots, Unready(whole, site)))


def follow(resident: Resident, activation: Activation, lanes: Lanes, position: int) -> None:
    """Look at the registers that an instruction, about to be executed, reads and writes."""
    decoded: Decoded = activation.function
    moves, name = decoded.flow(position), decoded.function.code[position].parts[0]
    unready = activation.unready
    held = [slot for slot in moves.sources if slot in unready]
    copied = unready[held[0]] if held and name == "mov" else None
    if held and copied is None:
        _report(resident, unready[held[0]], lanes, decoded.sites[position])
    for slot in moves.results if name != "wgmma" else ():
        if copied is not None:
            unready[slot] = copied
        else:
            unready.pop(slot, None)


def _report(resident: Resident, product: Unready, lanes: Lanes, site: Site) -> None:
    warps = resident.shared_shadow.clocks.pairs(lanes)
    late = product.due[warps] > resident.matrix_groups.waited[warps]
    if not late.any():
        return
    row, warp = (int(each[late][0]) for each in warps)
    mask = lanes.to_mask()[row]
    column = warp * WARP + int(mask[warp * WARP : (warp + 1) * WARP].argmax())
    other = product.site.place
    at = f" at line {other.own.line}" if other else ""
    message = f"{{who}} uses a sum that wgmma{at} may not have computed yet: no wgmma.wait_group stands in between"
    resident.reports.say(FindingKind.UNAWAITED_PRODUCT, site, message, row, column, other=other)
