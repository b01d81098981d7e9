"""Branches, calls and the end of threads.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoded, Decoder, Step, Successors
from kernel_lsp.emulate.errors import EmulatorFault, NeedsGpu
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.program import Arguments, Function, Operand, PtxInstruction, Register, Symbol
from kernel_lsp.emulate.registers import Activation, ParameterValue

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_NOTHING = {"nanosleep", "pragma", "griddepcontrol", "setmaxnreg", "pmevent"}
_ENDS = ("ret", "exit")
_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "wmma", "call"})


def bind_control(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind instructions after which threads do not simply continue."""
    name = instruction.parts[0]
    if name == "bra":
        return _bind_branch(decoder, instruction)
    if name == "brx":
        return _bind_table(decoder, instruction)
    if name == "call":
        return _bind_call(decoder, instruction, site)
    if name == "ret" and not decoder.function.entry:
        return _return
    if name in _ENDS:
        return _departure(decoder)
    if name in ("trap", "brkpt"):
        return _bind_trap(site)
    if name in _NOTHING:
        return lambda _r, _a, _l: None
    return None


def _ends_at(function: Function, position: int) -> bool:
    """Return True if a kernel's threads end without further effect from this position."""
    if not function.entry or position >= len(function.code):
        return function.entry
    instruction = function.code[position]
    return instruction.guard is None and instruction.parts[0] in _ENDS


def _bind_branch(decoder: Decoder, instruction: PtxInstruction) -> Step:
    (label,) = instruction.operands
    assert isinstance(label, Symbol)
    target = decoder.function.labels.get(label.name)
    if target is None:
        raise EmulatorFault(f"the PTX does not define the label `{label.name}`.")
    if _ends_at(decoder.function, target):
        # Threads that return early have exited before the others continue, as on the hardware.
        return _departure(decoder)

    def branch(_: Resident, activation: Activation, lanes: Lanes) -> Successors:
        return [(activation, target, lanes, False)]

    return branch


def _bind_table(decoder: Decoder, instruction: PtxInstruction) -> Step:
    index, table = instruction.operands
    assert isinstance(table, Symbol)
    targets = [decoder.function.labels[label] for label in decoder.function.tables[table.name]]
    fetch = decoder.fetch(index, "u32")

    def branch(resident: Resident, activation: Activation, lanes: Lanes) -> Successors:
        found: Successors = []
        rest: Lanes | None = lanes
        for number in np.unique(lanes.select(fetch(resident, activation, lanes))):
            if rest is None:
                break
            taken, rest = rest.where(fetch(resident, activation, rest) == number)
            if taken is not None:
                found.append((activation, targets[int(number)], taken, False))
        return found

    return branch


def _departure(decoder: Decoder) -> Step:
    """Return the step at which threads of a kernel exit: before its first access of memory for want of work."""
    before = decoder.function.code[: decoder.position]
    accesses = (each for each in before if each.parts[0] in _ACCESSES and "param" not in each.parts)
    return _turn_away if decoder.function.entry and not any(accesses) else _leave


def _turn_away(resident: Resident, _: Activation, lanes: Lanes) -> Successors:
    resident.turn_away(lanes)
    return []


def _leave(resident: Resident, _: Activation, lanes: Lanes) -> Successors:
    resident.leave(lanes)
    return []


def _return(_: Resident, activation: Activation, lanes: Lanes) -> Successors:
    parent = activation.parent
    assert parent is not None
    for formal, store in activation.results:
        value = activation.parameters[formal]
        store(parent, value.read(0, value.kind, lanes), lanes)
    return [(parent, activation.return_to, lanes, False)]


def _bind_trap(site: Site) -> Step:
    def trap(resident: Resident, _: Activation, lanes: Lanes) -> Successors:
        resident.reports.about_lanes(FindingKind.TRAP, site, "{who} stops the kernel with a trap", lanes)
        resident.leave(lanes)
        return []

    return trap


def _bind_call(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    operands = list(instruction.operands)
    results: tuple[Operand, ...] = ()
    if isinstance(operands[0], Arguments):
        results = operands[0].items
        del operands[0]
    target = operands.pop(0)
    arguments = operands[0].items if operands and isinstance(operands[0], Arguments) else ()
    if isinstance(target, Symbol):
        if target.name not in decoder.decoded.program.program.functions:
            return _bind_external(decoder, target.name, results, site)
        return _bind_known(decoder, decoder.callee(target.name), results, arguments)
    return _bind_indirect(decoder, target, results, arguments)


def _bind_known(
    decoder: Decoder, callee: Decoded, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> Step:
    following = decoder.position + 1
    passed = [
        (formal.name, actual.name, None)
        if isinstance(actual, Symbol)
        else (formal.name, "", decoder.fetch(actual, f"b{8 * formal.size}"))
        for formal, actual in zip(callee.function.parameters, arguments, strict=True)
    ]
    shared = [
        (formal.name, actual.name)
        for formal, actual in zip(callee.function.results, results, strict=True)
        if isinstance(actual, Symbol)
    ]
    taken = [
        (formal.name, decoder.store(actual))
        for formal, actual in zip(callee.function.results, results, strict=True)
        if isinstance(actual, Register)
    ]
    position = decoder.position

    def call(resident: Resident, activation: Activation, lanes: Lanes) -> Successors:
        key = (position, callee.function.name)
        inner = activation.children.get(key)
        if inner is None:
            base = activation.local_base + activation.function.local_bytes
            resident.local.reserve(base + callee.local_bytes)
            path = (*activation.path, position)
            inner = activation.children[key] = Activation(callee, path, activation, following, base)
            inner.results = taken
        for formal, actual, fetch in passed:
            if fetch is None:
                inner.parameters[formal] = activation.parameters.setdefault(actual, ParameterValue())
            else:
                value = inner.parameters.setdefault(formal, ParameterValue())
                value.write(0, fetch(resident, activation, lanes), lanes)
        for formal, actual in shared:
            inner.parameters[formal] = activation.parameters.setdefault(actual, ParameterValue())
        return [(inner, 0, lanes, False)]

    return call


def _bind_indirect(
    decoder: Decoder, target: Operand, results: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> Step:
    program = decoder.decoded.program
    fetch = decoder.fetch(target, "u64")
    names = [name for name, function in program.program.functions.items() if not function.entry]
    bound: dict[int, Step] = {}

    def call(resident: Resident, activation: Activation, lanes: Lanes) -> Successors:
        found: Successors = []
        rest: Lanes | None = lanes
        for number in np.unique(lanes.select(fetch(resident, activation, lanes))):
            if rest is None:
                break
            taken, rest = rest.where(fetch(resident, activation, rest) == number)
            name = next((n for n in names if resident.launch.symbols.get(n) == int(number)), None)
            if name is None:
                raise NeedsGpu("a call through a pointer to no known function")
            if int(number) not in bound:
                bound[int(number)] = _bind_known(decoder, decoder.callee(name), results, arguments)
            if taken is not None:
                found += bound[int(number)](resident, activation, taken) or []
        return found

    return call


def _bind_external(decoder: Decoder, name: str, results: tuple[Operand, ...], site: Site) -> Step:
    """Bind the few functions of the device's runtime that kernels call; their output is dropped."""
    if name == "__assertfail":

        def failed(resident: Resident, _: Activation, lanes: Lanes) -> Successors:
            resident.reports.about_lanes(FindingKind.TRAP, site, "{who} fails an assertion", lanes)
            resident.leave(lanes)
            return []

        return failed
    if name == "vprintf":
        stores = [decoder.store(each) for each in results if isinstance(each, Register)]
        places = [each.name for each in results if isinstance(each, Symbol)]

        def printed(_: Resident, activation: Activation, lanes: Lanes) -> None:
            for store in stores:
                store(activation, np.ones((1, 1), np.uint32), lanes)
            for place in places:
                value = activation.parameters.setdefault(place, ParameterValue())
                value.write(0, np.ones((1, 1), np.uint32), lanes)

        return printed

    def unknown(_r: Resident, _a: Activation, _l: Lanes) -> None:
        location = site.location
        raise NeedsGpu(f"a call of `{name}`", location.line if location else None)

    return unknown
