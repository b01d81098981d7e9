"""Turns races with bulk copies and `wgmma` into sentences.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.wording import VERBS

if TYPE_CHECKING:
    from kernel_lsp.emulate.races import Conflict
    from kernel_lsp.emulate.reports import Reports

Array: TypeAlias = NDArray[Any]


def beside_agent(
    reports: Reports, address: int, conflict: Conflict, size: int, site: Site, access: str, thread: tuple[int, int]
) -> None:
    """Report an access of shared memory, by the thread at a row and column, that a copy or `wgmma` still uses."""
    what = _asynchronous(reports, conflict)
    if conflict.before == "write":
        kind, why = FindingKind.UNAWAITED_COPY, "may still write: its phase was not waited for"
    else:
        kind, why = FindingKind.OVERWRITTEN_STAGE, "may still read: it was not waited for"
    message = f"{VERBS[access]} {reports.shared.named(address, size)}, which {what} {why}"
    values: dict[str, Any] = {"space": "shared", "access": access, "address": address, "size": size}
    other = reports.sites[conflict.site].place
    reports.say(kind, site, message, *thread, other=other, count=conflict.count, **values)


def before_copy(
    reports: Reports, address: int, copy: int, size: int, site: Site, thread: tuple[int, int], count: int
) -> None:
    """Report a read of shared memory to which a copy, the instruction of this index, came only afterwards."""
    other = reports.sites[copy].place
    at = f" at line {other.own.line}" if other else ""
    message = f"reads {reports.shared.named(address, size)}, which the copy{at} writes only later"
    values: dict[str, Any] = {"space": "shared", "access": "read", "address": address, "size": size}
    reports.say(FindingKind.UNAWAITED_COPY, site, message, *thread, other=other, count=count, **values)


def agent_race(
    reports: Reports, addresses: Array, conflict: Conflict, site: Site, rows: Array, columns: Array, writes: bool
) -> None:
    """Report that a copy or `wgmma`, started by one of these threads, uses shared memory that others use.

    `addresses` are (threads, accesses); the position of the conflict is one of them.
    """
    thread = conflict.position // addresses.shape[1]
    address = int(addresses.reshape(-1)[conflict.position])
    kind, why = _kind_of(reports, conflict, writes, int(rows[thread]))
    reports.say(
        kind,
        site,
        f"what {{who}} starts here {'overwrites' if writes else 'reads'} {reports.shared.named(address, 1)}, {why}",
        int(rows[thread]),
        int(columns[thread]),
        other=reports.sites[conflict.site].place,
        space="shared",
        access="write" if writes else "read",
        address=address,
        count=conflict.count,
    )


def _kind_of(reports: Reports, conflict: Conflict, writes: bool, row: int) -> tuple[FindingKind, str]:
    """Return the kind of the finding about a thread of the block at `row`, and its last clause."""
    if conflict.agent:
        what = _asynchronous(reports, conflict)
        if conflict.before == "write" and not writes:
            return FindingKind.UNAWAITED_COPY, f"which {what} may still write: its phase was not waited for"
        return FindingKind.OVERWRITTEN_STAGE, f"which {what} may still {conflict.before}: it was not waited for"
    other = reports.sites[conflict.site].place
    him = reports.earlier_thread(conflict, row)
    at = f" at line {other.own.line}" if other else ""
    if conflict.unfenced:
        return FindingKind.MISSING_PROXY_FENCE, f"which {him} has written{at}, with no fence.proxy.async in between"
    if writes:
        earlier = "reads" if conflict.before == "read" else "writes"
        return FindingKind.OVERWRITTEN_STAGE, f"which {him} {earlier}{at}, and nothing orders the two"
    return FindingKind.SHARED_RACE, f"which {him} has written{at} with no barrier in between"


def _asynchronous(reports: Reports, conflict: Conflict) -> str:
    """Return `the copy at line 3` or `wgmma at line 7`."""
    earlier = reports.sites[conflict.site]
    at = f" at line {earlier.place.own.line}" if earlier.place else ""
    return ("wgmma" if earlier.instruction.parts[0] == "wgmma" else "the copy") + at
