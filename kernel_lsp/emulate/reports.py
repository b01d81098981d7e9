"""Turns findings into sentences, with the values of the first thread concerned.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.findings import Finding, FindingCollector, FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import Buffer, GlobalMemory
from kernel_lsp.emulate.program import Location
from kernel_lsp.emulate.races import Conflict, Outlived
from kernel_lsp.emulate.stage_reports import beside_agent
from kernel_lsp.emulate.wording import VERBS, SharedVariables, index_of, outside, touched

if TYPE_CHECKING:
    from kernel_lsp.emulate.special import Geometry

Array: TypeAlias = NDArray[Any]
Place: TypeAlias = tuple[int, int]


class Reports:
    """Makes findings for the blocks of one launch. A `Place` is the row and column of the first thread that did it.

    Args:
        findings: receives them.
        geometry: tells threads and blocks apart.
        memory: tells buffers by address.
        shared: tells variables of shared memory by offset.
        sites: all instructions, by the index that races give.
    """

    def __init__(
        self,
        findings: FindingCollector,
        geometry: Geometry,
        memory: GlobalMemory,
        shared: SharedVariables,
        sites: list[Site],
    ) -> None:
        self._findings, self.geometry, self._memory = findings, geometry, memory
        self.shared, self.sites = shared, sites

    def thread(self, column: int) -> str:
        """Return the index of a thread in words."""
        return index_of(self.geometry.thread(column), self.geometry.shape)

    def earlier_thread(self, conflict: Conflict, row: int) -> str:
        """Return the earlier thread of a race in words; its block too if that is not the one at `row`."""
        name = f"thread {self.thread(conflict.thread)}"
        if conflict.row in (None, row):
            return name
        return f"{name} of block {self.block(int(self.geometry.numbers[conflict.row]))}"

    def block(self, number: int) -> str:
        """Return the index of a block, given by its linear number, in words."""
        return index_of(self.geometry.any_block(number), self.geometry.grid)

    def say(
        self,
        kind: FindingKind,
        site: Site,
        message: str,
        row: int,
        column: int,
        *,
        location: Location | None = None,
        **values: Any,
    ) -> None:
        """Add a finding of the thread at `row` and `column`; `{who}` in the message becomes its name, which else
        stands at the end.
        """
        thread, block = self.geometry.thread(column), self.geometry.block(row)
        named = f"thread {self.thread(column)}", f"block {self.block(int(self.geometry.numbers[row]))}"
        subject = "{who}" in message
        text = message.replace("{who}", " of ".join(named)) if subject else f"{message} ({', '.join(named)})"
        where = location or site.place
        self._findings.add(Finding(kind, text[0].upper() + text[1:] + ".", where, thread=thread, block=block, **values))

    def _first(self, bad: Array, lanes: Lanes) -> tuple[int, int, int, int]:
        """Return the flat position of the first bad element, its row and column, and the number of bad ones."""
        position = int(bad.argmax())
        row, column = lanes.place(position, bad.shape)
        return position, row, column, int(np.count_nonzero(bad))

    def outside(self, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site, access: str) -> None:
        """Report accesses of global memory outside all buffers."""
        position, row, column, count = self._first_of_grid(bad, lanes)
        self.outside_at(int(addresses.reshape(-1)[position]), size, site, access, (row, column), count)

    def outside_at(self, address: int, size: int, site: Site, access: str, thread: Place, count: int) -> None:
        """Report accesses of global memory outside all buffers."""
        buffer = self._memory.nearest(address)
        values: dict[str, Any] = {"space": "global", "access": access, "address": address, "size": size, "count": count}
        message = f"{VERBS[access]} {outside(buffer, address, size)}"
        if buffer is not None:
            values |= {"buffer": buffer.name, "index": address - buffer.address}
        self.say(FindingKind.OUT_OF_BOUNDS, site, message, *thread, **values)

    def _first_of_grid(self, bad: Array, lanes: Lanes) -> tuple[int, int, int, int]:
        position = int(bad.reshape(-1).argmax())
        row, column = np.unravel_index(position, bad.shape)
        return position, int(lanes.row_ids[row]), int(lanes.column_ids[column]), int(np.count_nonzero(bad))

    def misaligned(
        self, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site, access: str, space: str
    ) -> None:
        """Report accesses whose address is not a multiple of their size."""
        position, row, column, count = self._first_of_grid(bad, lanes)
        address = int(addresses.reshape(-1)[position])
        if space == "global":
            self.misaligned_at(address, size, size, site, access, (row, column), count)
            return
        values: dict[str, Any] = {"space": space, "access": access, "address": address, "size": size, "count": count}
        place = self.shared.named(address, size)
        message = f"{VERBS[access]} {size} bytes at once ({place}), whose address is not a multiple of {size}"
        self.say(FindingKind.MISALIGNED, site, message, row, column, **values)

    def misaligned_at(
        self, address: int, size: int, align: int, site: Site, access: str, thread: Place, count: int
    ) -> None:
        """Report accesses of global memory whose address is not a multiple of `align`."""
        buffer = self._memory.find(address)
        values: dict[str, Any] = {"space": "global", "access": access, "address": address, "size": size, "count": count}
        place = ""
        if buffer is not None:
            values |= {"buffer": buffer.name, "index": address - buffer.address}
            place = f" ({touched(buffer, values['index'], size)})"
        message = f"{VERBS[access]} {size} bytes at once{place}, whose address is not a multiple of {align}"
        self.say(FindingKind.MISALIGNED, site, message, *thread, **values)

    def read_only(
        self, buffer: Buffer, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site, access: str
    ) -> None:
        """Report writes to a read-only buffer."""
        position, row, column, count = self._first_of_grid(bad, lanes)
        address = int(addresses.reshape(-1)[position])
        self.read_only_at(buffer, address, size, site, access, (row, column), count)

    def read_only_at(
        self, buffer: Buffer, address: int, size: int, site: Site, access: str, thread: Place, count: int
    ) -> None:
        """Report writes to a read-only buffer."""
        index = address - buffer.address
        message = f"{VERBS[access]} {touched(buffer, index, size)}, which is read-only"
        values: dict[str, Any] = {"space": "global", "access": access, "buffer": buffer.name}
        values |= {"address": address, "index": index, "size": size, "count": count}
        self.say(FindingKind.OUT_OF_BOUNDS, site, message, *thread, **values)

    def unwritten(self, buffer: Buffer, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site) -> None:
        """Report reads of unwritten global memory."""
        position, row, column, count = self._first(bad, lanes)
        address = int(addresses.reshape(-1)[position])
        index = address - buffer.address
        message = f"reads {touched(buffer, index, size)}, which nothing has written"
        self.say(
            FindingKind.UNINITIALISED,
            site,
            message,
            row,
            column,
            space="global",
            access="read",
            buffer=buffer.name,
            address=address,
            index=index,
            size=size,
            count=count,
        )

    def unwritten_shared(self, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site) -> None:
        """Report reads of unwritten shared memory."""
        position, row, column, count = self._first(bad, lanes)
        address = int(np.broadcast_to(addresses, bad.shape).reshape(-1)[position])
        self.unwritten_shared_at(address, size, site, (row, column), count)

    def unwritten_shared_at(self, address: int, size: int, site: Site, thread: Place, count: int) -> None:
        """Report reads of unwritten shared memory."""
        message = f"reads {self.shared.named(address, size)}, which no thread has written"
        values: dict[str, Any] = {"space": "shared", "access": "read", "address": address, "size": size, "count": count}
        self.say(FindingKind.UNINITIALISED, site, message, *thread, **values)

    def outside_shared(self, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site, access: str) -> None:
        """Report accesses beyond the block's shared memory."""
        self._outside_own(addresses, bad, size, lanes, site, access, "shared", self.geometry.shared_bytes)

    def ended_block(
        self, bad: Array, rows: Array, addresses: Array, size: int, lanes: Lanes, site: Site, access: str
    ) -> None:
        """Report accesses of the shared memory of a block of the cluster that has ended; `bad` as selected, flat."""
        position = int(bad.argmax())
        row, column = divmod(int(lanes.lane_ids.reshape(-1)[position]), lanes.extent[1])
        him, address = self.block(int(self.geometry.numbers[int(rows[position])])), int(addresses[position])
        message = f"{VERBS[access]} {self.shared.named(address, size)} in block {him}, which has ended"
        values: dict[str, Any] = {"space": "shared", "access": access, "address": address, "size": size}
        self.say(FindingKind.OUT_OF_BOUNDS, site, message, row, column, count=int(np.count_nonzero(bad)), **values)

    def outlived(self, late: Outlived) -> None:
        """Report an access of the shared memory of a block of the cluster that may end before it."""
        him = self.block(int(self.geometry.numbers[late.row]))
        site = self.sites[late.site]
        verb = "uses the mbarrier at" if site.instruction.parts[0] == "mbarrier" else VERBS[late.access]
        message = (
            f"{verb} {self.shared.named(late.address, 1)} in block {him}, which may have ended: "
            "no barrier of the cluster keeps it"
        )
        values: dict[str, Any] = {"space": "shared", "access": late.access, "address": late.address}
        self.say(FindingKind.OUT_OF_BOUNDS, site, message, late.owner, late.column, **values)

    def outside_local(self, addresses: Array, bad: Array, size: int, lanes: Lanes, site: Site, access: str) -> None:
        """Report accesses beyond the thread's local memory."""
        self._outside_own(addresses, bad, size, lanes, site, access, "local", None)

    def _outside_own(
        self,
        addresses: Array,
        bad: Array,
        size: int,
        lanes: Lanes,
        site: Site,
        access: str,
        space: str,
        available: int | None,
    ) -> None:
        position, row, column, count = self._first_of_grid(bad, lanes)
        address = int(addresses.reshape(-1)[position])
        self._outside_own_at(address, size, site, access, (row, column), count, space, available)

    def outside_shared_at(self, address: int, size: int, site: Site, access: str, thread: Place, count: int) -> None:
        """Report accesses beyond the block's shared memory."""
        self._outside_own_at(address, size, site, access, thread, count, "shared", self.geometry.shared_bytes)

    def _outside_own_at(
        self,
        address: int,
        size: int,
        site: Site,
        access: str,
        thread: Place,
        count: int,
        space: str,
        available: int | None,
    ) -> None:
        if available is None:
            message = f"{VERBS[access]} {size} bytes at byte {address:,} of local memory, outside the thread's arrays"
        else:
            place = self.shared.named(address, size)
            message = f"{VERBS[access]} {place}, but the block has {available:,} bytes of shared memory"
        values: dict[str, Any] = {"space": space, "access": access, "address": address, "size": size, "count": count}
        self.say(FindingKind.OUT_OF_BOUNDS, site, message, *thread, **values)

    def misaligned_shared_at(
        self, address: int, align: int, site: Site, access: str, thread: Place, count: int
    ) -> None:
        """Report copies whose place in shared memory is no multiple of `align`."""
        message = f"{VERBS[access]} at {self.shared.named(address, 1)}, whose address is not a multiple of {align}"
        values: dict[str, Any] = {"space": "shared", "access": access, "address": address, "count": count}
        self.say(FindingKind.MISALIGNED, site, message, *thread, **values)

    def shared_race(
        self, addresses: Array, conflict: Conflict, size: int, lanes: Lanes, site: Site, access: str
    ) -> None:
        """Report accesses of shared memory that no barrier orders."""
        if lanes.mask is None:  # one address may serve all threads
            addresses = np.broadcast_to(addresses, lanes.shape)
        address, place = int(addresses.reshape(-1)[conflict.position]), lanes.place(conflict.position, addresses.shape)
        self.shared_race_at(address, conflict, size, site, access, place)

    def shared_race_at(
        self, address: int, conflict: Conflict, size: int, site: Site, access: str, thread: Place
    ) -> None:
        """Report an access of shared memory that no barrier orders with an earlier one."""
        if conflict.agent:
            beside_agent(self, address, conflict, size, site, access, thread)
            return
        row, column = thread
        other = self.sites[conflict.site].location
        earlier = "has read" if conflict.before == "read" else "has written"
        if conflict.pending:
            earlier = "copies asynchronously without having waited for it"
        at = f" at line {other.own.line}" if other and other != site.location else ""
        itself = conflict.thread == column and conflict.row in (None, row)
        by = "it itself" if itself else self.earlier_thread(conflict, row)
        what = f"{VERBS[access]} {self.shared.named(address, size)}, which {by} {earlier}{at}"
        message = what if conflict.pending else f"{what} with no barrier in between"
        self.say(
            FindingKind.SHARED_RACE,
            site,
            message,
            row,
            column,
            other=other,
            space="shared",
            access=access,
            address=address,
            size=size,
            count=conflict.count,
        )

    def same_instruction(self, flat: Array, lost: Array, addresses: Array, size: int, lanes: Lanes, site: Site) -> None:
        """Report threads of a block that store different values to one place of shared memory at once."""
        position, row, column, count = self._first(lost, lanes)
        address = int(np.broadcast_to(addresses, lost.shape).reshape(-1)[position])
        rivals = np.flatnonzero(flat.reshape(-1) == flat.reshape(-1)[position])
        _, rival = lanes.place(int(rivals[-1]), lost.shape)
        place = self.shared.named(address, size)
        message = f"writes {place}, to which thread {self.thread(rival)} writes another value"
        values: dict[str, Any] = {
            "space": "shared",
            "access": "write",
            "address": address,
            "size": size,
            "count": count,
        }
        self.say(FindingKind.SHARED_RACE, site, message, row, column, other=site.location, **values)

    def global_race(
        self,
        buffer: Buffer,
        addresses: Array,
        conflict: Conflict,
        size: int,
        lanes: Lanes,
        site: Site,
        access: str,
        per_access: int,
    ) -> None:
        """Report unordered accesses of global memory by different blocks."""
        position = conflict.position // per_access
        thread = lanes.place(position, addresses.shape)
        self.global_race_at(buffer, int(addresses.reshape(-1)[position]), conflict, size, site, access, thread)

    def global_race_at(
        self, buffer: Buffer, address: int, conflict: Conflict, size: int, site: Site, access: str, thread: Place
    ) -> None:
        """Report unordered accesses of global memory by different blocks."""
        other = self.sites[conflict.site].location
        earlier = {"read": "reads", "write": "writes", "atomic": "updates"}[conflict.before]
        him = "other blocks" if conflict.thread < 0 else f"block {self.block(conflict.thread)}"
        earlier = earlier.rstrip("s") if conflict.thread < 0 else earlier
        at = f" at line {other.own.line}" if other and other != site.location else ""
        index = address - buffer.address
        place = touched(buffer, index, size)
        message = f"{VERBS[access]} {place}, which {him} {earlier}{at}, in no certain order"
        values: dict[str, Any] = {
            "space": "global",
            "buffer": buffer.name,
            "address": address,
            "index": index,
            "size": size,
            "count": conflict.count,
        }
        self.say(FindingKind.GLOBAL_RACE, site, message, *thread, other=other, access=access, **values)
        if conflict.before == "read" and other != site.location:
            # Their order is random: the reader is as wrong as the writer.
            at = f" at line {site.location.own.line}" if site.location else ""
            message = f"{place} is read here while {{who}} {VERBS[access]} it{at}, in no certain order"
            values |= {"access": "read", "location": other, "other": site.location}
            self.say(FindingKind.GLOBAL_RACE, site, message, *thread, **values)

    def overwritten(
        self, buffer: Buffer, addresses: Array, where: Array, lost: Array, size: int, lanes: Lanes, site: Site
    ) -> None:
        """Report threads of different blocks that store different values to one place at once."""
        flat = where.reshape(-1)
        for position in np.flatnonzero(lost.reshape(-1))[:64]:
            row, column = lanes.place(int(position), lost.shape)
            rival = int(np.flatnonzero(flat == flat[position])[-1])
            other_row, _ = lanes.place(rival, lost.shape)
            if other_row == row:
                continue
            address = int(addresses.reshape(-1)[position])
            index = address - buffer.address
            him = self.block(int(self.geometry.numbers[other_row]))
            message = f"writes {touched(buffer, index, size)}, to which block {him} writes another value"
            values: dict[str, Any] = {
                "space": "global",
                "access": "write",
                "buffer": buffer.name,
                "address": address,
                "index": index,
            }
            count = int(np.count_nonzero(lost))
            self.say(
                FindingKind.GLOBAL_RACE,
                site,
                message,
                row,
                column,
                other=site.location,
                size=size,
                count=count,
                **values,
            )
            return

    def about_lanes(self, kind: FindingKind, site: Site, message: str, lanes: Lanes, bad: Array | None = None) -> None:
        """Report a finding about threads themselves; `bad`, of the lanes' shape, selects them."""
        if bad is None:
            bad = np.ones(lanes.shape, np.bool_) if lanes.mask is None else lanes.mask
        _, row, column, count = self._first_of_grid(bad, lanes)
        self.say(kind, site, message, row, column, count=count)
