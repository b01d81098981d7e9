"""Binds `mbarrier.*` and `cp.async.mbarrier.arrive`.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step, Successors
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.phases import PhaseBarrier, Users, pending_count
from kernel_lsp.emulate.program import Address, Operand, PtxInstruction, Sink
from kernel_lsp.emulate.registers import Activation, Fetch
from kernel_lsp.emulate.remote import follow_remote, shared_targets
from kernel_lsp.emulate.transfers import Locate, locator, space_of
from kernel_lsp.emulate.waits import PhaseWait

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_BYTES = 8


def bind_mbarriers(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind instructions on mbarriers."""
    parts = instruction.parts
    if parts[:4] == ("cp", "async", "mbarrier", "arrive"):
        return _bind_copy_arrival(decoder, instruction, site)
    if parts[0] != "mbarrier":
        return None
    if parts[1] == "pending_count":
        fetch, store = decoder.fetch(instruction.operands[1], "b64"), decoder.store(instruction.operands[0])
        return lambda resident, activation, lanes: store(
            activation, pending_count(fetch(resident, activation, lanes)), lanes
        )
    if parts[1] in ("test_wait", "try_wait"):
        return _bind_wait(decoder, instruction, site)
    if parts[1] in ("arrive", "arrive_drop"):
        return _bind_arrival(decoder, instruction, site)
    if parts[1] in ("init", "inval", "expect_tx", "complete_tx"):
        return _bind_change(decoder, instruction, site)
    return None


class _Named:
    """Finds the mbarriers that the threads of an instruction name."""

    def __init__(self, decoder: Decoder, instruction: PtxInstruction, operand: Operand, site: Site) -> None:
        assert isinstance(operand, Address)
        self._locate: Locate = locator(decoder, operand)
        self._space, self._site = space_of(instruction.parts) or "", site

    def users(
        self, resident: Resident, activation: Activation, lanes: Lanes, writes: bool = False
    ) -> list[tuple[PhaseBarrier, Users]]:
        """Return the threads by barrier; `writes` is for an instruction after which the others must be ordered."""
        site = self._site
        addresses = self._locate(resident, activation, lanes)
        targets = shared_targets(resident, self._space, addresses, _BYTES, lanes, site, "atomic")
        found: list[tuple[PhaseBarrier, Users]] = []
        for address in np.unique(targets.addresses):
            at = np.flatnonzero((targets.addresses == address) & targets.sound)
            if len(at):
                users = Users(targets.rows[at], targets.owners[at], targets.columns[at], at)
                found.append((resident.phases.at(int(address)), users))
        if resident.check and bool((targets.rows != targets.owners).any()):
            follow_remote(resident, targets, _BYTES, site, "read")
        elif resident.check:
            self._follow(resident, targets.addresses[targets.sound], targets.lanes, writes)
        return found

    def _follow(self, resident: Resident, addresses: Array, lanes: Lanes | None, writes: bool) -> None:
        """Look for races of `init` and `inval` with other uses of the barrier."""
        if lanes is None:
            return
        chosen = addresses if lanes.mask is not None else addresses.reshape(lanes.shape)
        shadow = resident.shared_shadow
        if writes:
            shadow.barrier_sites.add(self._site.index)
            conflict, access = shadow.write(chosen, _BYTES, lanes, self._site.index, False), "write"
        else:
            conflict, access = shadow.read(chosen, _BYTES, lanes, self._site.index, False)[0], "read"
        if conflict is not None:
            resident.reports.shared_race(chosen, conflict, _BYTES, lanes, self._site, access)


def _flat(value: Array, lanes: Lanes, kind: type = np.int64) -> Array:
    """Return a value of some threads as one element for each of them."""
    return lanes.select(np.broadcast_to(value, lanes.shape)).reshape(-1).astype(kind)


def _bind_change(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    name = instruction.parts[1]
    named = _Named(decoder, instruction, instruction.operands[0], site)
    amount = decoder.fetch(instruction.operands[1], "u32") if len(instruction.operands) > 1 else None

    def change(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        phases = resident.phases
        amounts = None if amount is None else _flat(amount(resident, activation, lanes), lanes)
        for barrier, everyone in named.users(resident, activation, lanes, name in ("init", "inval")):
            if name == "init":
                assert amounts is not None
                phases.init(barrier, everyone, amounts[everyone.positions])
                continue
            users = phases.usable(barrier, everyone, site)
            if name == "inval":
                phases.invalidate(barrier, users)
            elif amounts is not None and name == "expect_tx":
                phases.announce(barrier, users, amounts[users.positions], site)
            elif amounts is not None:
                phases.bring(barrier, users.rows, amounts[users.positions], site)

    return change


def _bind_arrival(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    parts, operands = instruction.parts, list(instruction.operands)
    target = operands.pop(0) if not isinstance(operands[0], Address) else Sink()
    store = decoder.store(target)
    named = _Named(decoder, instruction, operands[0], site)
    extra: Fetch | None = decoder.fetch(operands[1], "u32") if len(operands) > 1 else None
    announces, drops = "expect_tx" in parts, parts[1] == "arrive_drop"

    def arrive(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        states = np.zeros(lanes.count, np.uint64)
        given = None if extra is None else _flat(extra(resident, activation, lanes), lanes)
        for barrier, everyone in named.users(resident, activation, lanes):
            users = resident.phases.usable(barrier, everyone, site)
            counts = np.ones(len(users.rows), np.int64)
            if given is not None and announces:
                resident.phases.announce(barrier, users, given[users.positions], site)
            elif given is not None:
                counts = given[users.positions]
            states[users.positions] = resident.phases.arrive(barrier, users, counts, site, drops)
        store(activation, _spread(states, lanes), lanes)

    return arrive


def _spread(values: Array, lanes: Lanes) -> Array:
    return values.reshape(lanes.shape) if lanes.mask is None else lanes.spread(values)


def _bind_wait(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    parts, (target, address, wanted, *_) = instruction.parts, instruction.operands
    store = decoder.store(target)
    named = _Named(decoder, instruction, address, site)
    parity, acquires, suspends = "parity" in parts, "relaxed" not in parts, parts[1] == "try_wait"
    fetch = decoder.fetch(wanted, "u32" if parity else "b64")
    following = decoder.position + 1

    def wait(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        phases = _flat(fetch(resident, activation, lanes), lanes, np.uint64)
        users = [
            (barrier, kept, phases[kept.positions], barrier.phase[kept.rows])
            for barrier, everyone in named.users(resident, activation, lanes)
            if len((kept := resident.phases.usable(barrier, everyone, site)).rows)
        ]
        waiting = PhaseWait(activation, following, lanes, site, store, users, parity, acquires)
        if suspends:
            return resident.phase_waits.wait(waiting)
        store(activation, lanes.read(resident.phase_waits.test(waiting)), lanes)
        return None

    return wait


def _bind_copy_arrival(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    """Bind the arrival that the end of a thread's `cp.async` copies triggers; here they have ended."""
    named = _Named(decoder, instruction, instruction.operands[0], site)
    counted = "noinc" in instruction.parts

    def arrive(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        if resident.check:
            resident.copies.wait(None, lanes)
        for barrier, everyone in named.users(resident, activation, lanes):
            users = resident.phases.usable(barrier, everyone, site)
            if not counted:  # it raises the count of pending arrivals first
                np.add.at(barrier.pending, users.rows, 1)
            resident.phases.arrive(barrier, users, np.ones(len(users.rows), np.int64), site)

    return arrive
