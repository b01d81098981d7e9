"""Binds each instruction, once, to a function that executes it for a set of lanes.

Worker-only: imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import arithmetic
from kernel_lsp.emulate.arithmetic import Operation
from kernel_lsp.emulate.contraction import Contraction, contract
from kernel_lsp.emulate.counters import Site, calls_of
from kernel_lsp.emulate.errors import NeedsGpu, internal
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import CLUSTER_BLOCKS, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from kernel_lsp.emulate.program import Function, Immediate, Operand, Pair, Program, PtxInstruction, Register
from kernel_lsp.emulate.ptx import type_bytes
from kernel_lsp.emulate.registers import Activation, Fetch, Store, fetcher, storer
from kernel_lsp.emulate.taint import Flow, flow
from kernel_lsp.errors import CannotJudgeError

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]
Successors: TypeAlias = "list[tuple[Activation, int, Lanes, bool]]"
# Result of a step: None if all lanes continue with the next instruction; else the successors of each group of lanes,
# and whether they should wait for others first.
Step: TypeAlias = "Callable[[Resident, Activation, Lanes], Successors | None]"
Binder: TypeAlias = "Callable[[Decoder, PtxInstruction, Site], Step | None]"

CARRY = 0


@dataclass(eq=False)
class Decoded:
    """A function ready for execution: a step and a site for each instruction, a slot for each register."""

    function: Function
    program: DecodedProgram
    slots: dict[str, int]
    locals: dict[str, int]
    local_bytes: int
    contraction: Contraction
    steps: list[Step] = field(default_factory=list[Step])
    sites: list[Site] = field(default_factory=list[Site])

    _flows: dict[int, Flow] = field(default_factory=dict[int, Flow])

    def flow(self, position: int) -> Flow:
        """Return the registers that an instruction reads and writes."""
        found = self._flows.get(position)
        if found is None:
            found = self._flows[position] = flow(self.function.code[position], self.slots)
        return found

    @property
    def register_count(self) -> int:
        """Return the number of registers, with the carry flag."""
        return len(self.slots) + 1


@dataclass(eq=False)
class DecodedProgram:
    """The functions of a program that have been decoded so far, and all their instructions."""

    program: Program
    functions: dict[str, Decoded] = field(default_factory=dict[str, Decoded])
    sites: list[Site] = field(default_factory=list[Site])

    @property
    def arch(self) -> int:
        """Return the architecture as a number, 90 for sm_90."""
        return int("".join(c for c in self.program.target if c.isdigit()) or 90)

    def function(self, name: str, binders: tuple[Binder, ...]) -> Decoded:
        """Return a function by name, decoding it at first use."""
        found = self.functions.get(name)
        if found is None:
            found = self.functions[name] = self._decode(self.program.functions[name], binders)
        return found

    def _decode(self, function: Function, binders: tuple[Binder, ...]) -> Decoded:
        contraction = contract(function)
        factors = (_second_factor(name) for name in contraction.products.values())
        function = replace(function, registers=function.registers | dict.fromkeys(factors, "f32"))
        slots = {name: number for number, name in enumerate(function.registers, start=CARRY + 1)}
        places: dict[str, int] = {}
        size = 0
        for variable in function.variables:
            if variable.space == "local":
                places[variable.name] = -(-size // variable.align) * variable.align
                size = places[variable.name] + variable.size
        decoded = Decoded(function, self, slots, places, -(-size // 16) * 16, contraction)
        self.functions[function.name] = decoded
        for number, (instruction, call) in enumerate(zip(function.code, calls_of(function.code), strict=True)):
            site = Site(instruction, len(self.sites), function.name, call=call)
            self.sites.append(site)
            decoded.sites.append(site)
            decoded.steps.append(_bind(Decoder(decoded, binders, number), instruction, site))
        return decoded


@dataclass(frozen=True)
class Decoder:
    """The context for binding an instruction: its function, and its position there."""

    decoded: Decoded
    binders: tuple[Binder, ...]
    position: int

    @property
    def function(self) -> Function:
        """Return the function as read."""
        return self.decoded.function

    def fetch(self, operand: Operand, kind: str) -> Fetch:
        """Return a function that fetches a source operand; constants have PTX type `kind`."""
        return fetcher(self.function, self.decoded.slots, operand, kind)

    def store(self, operand: Operand, signed: bool = False) -> Store:
        """Return a function that stores a result, extended to its register's width."""
        return storer(self.function, self.decoded.slots, operand, signed)

    def callee(self, name: str) -> Decoded:
        """Return a called function."""
        return self.decoded.program.function(name, self.binders)


def _bind(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    try:
        steps = (binder(decoder, instruction, site) for binder in decoder.binders)
        step = next((step for step in steps if step is not None), None)
        if step is None:
            step = _failing(NeedsGpu(f"`{instruction.opcode}`"))
    except CannotJudgeError as error:
        step = _failing(error)
    except Exception as error:
        step = _failing(internal(error, instruction))
    return step if instruction.guard is None else _guarded(decoder, instruction, step)


def _failing(error: CannotJudgeError) -> Step:
    """Return a step that raises when it is reached: code for other architectures is often present and skipped."""

    def fail(_r: Resident, _a: Activation, _l: Lanes) -> None:
        raise error

    return fail


def _guarded(decoder: Decoder, instruction: PtxInstruction, step: Step) -> Step:
    guard = instruction.guard
    assert guard is not None
    slot, negated, following = decoder.decoded.slots[guard.register.name], guard.negated, decoder.position + 1
    nobody = np.zeros((1, 1), np.bool_)
    conditional = instruction.opcode.startswith("bra")

    def guarded(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        value = activation.registers[slot]
        if value is None:
            value = nobody
        taken, left = _split(value, slot, negated, activation, lanes)
        if conditional:
            _count_branch(instruction_site, lanes, taken, left)
        if taken is None:
            return [(activation, following, lanes, False)] if conditional else None
        gone = step(resident, activation, taken)
        if gone is not None and left is not None:
            gone.append((activation, following, left, False))
        return gone

    instruction_site = decoder.decoded.sites[decoder.position]
    return guarded


def _split(
    value: Array, slot: int, negated: bool, activation: Activation, lanes: Lanes
) -> tuple[Lanes | None, Lanes | None]:
    """Return the lanes with and without the predicate; cached, as many instructions test the same lanes."""
    known = lanes.splits.get((slot, negated))
    if known is not None and known[0] is value:
        return known[1], known[2]
    condition = lanes.read(value)
    if negated:
        condition = ~condition
    taken, left = lanes.where(condition)
    if not activation.owned[slot]:  # a register written in place keeps its identity while its value changes
        lanes.splits[slot, negated] = (value, taken, left)
    return taken, left


def _count_branch(site: Site, lanes: Lanes, taken: Lanes | None, left: Lanes | None) -> None:
    site.counters.branches += lanes.warps
    if taken is not None and left is not None:
        site.counters.divergent_branches += taken.warps + left.warps - lanes.warps


# Arithmetic.

_SHIFTS = ("shl", "shr")
_WORDS = {"bfe": (1, 2), "bfi": (2, 3), "shf": (0, 1, 2), "lop3": (0, 1, 2, 3), "prmt": (0, 1, 2), "bmsk": (0, 1)}


def source_kinds(parts: tuple[str, ...], count: int) -> list[str]:
    """Return the PTX types of an arithmetic instruction's source operands, as far as constants need them."""
    name, kind = parts[0], parts[-1]
    kinds = [kind] * count
    if name in _SHIFTS:
        kinds[1] = "u32"
    for position in _WORDS.get(name, ()):
        if position < count:
            kinds[position] = "u32"
    if name in ("mul", "mad") and "wide" in parts and count == 3:
        kinds[2] = f"{kind[0]}{16 * type_bytes(kind)}"
    if name == "selp" or (name in ("setp", "set") and count == 3):
        kinds[2] = "pred"
    if name == "slct":
        kinds[:2] = [parts[-2]] * 2
    if name in ("dp4a", "dp2a"):
        kinds = ["b32"] * count
    if name == "cvt" and "pack" in parts:
        kinds = [parts[-2] if parts[-1] == "b32" else parts[-1]] * 2 + ["b32"] * (count - 2)
    if name in ("fma", "add", "sub") and parts[-2] == "f32" and kind in ("f16", "bf16"):
        kinds[-1] = "f32"
    return kinds


def bind_arithmetic(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind instructions that compute each lane's result from its registers."""
    operation = arithmetic.bind(instruction.opcode)
    if operation is None or not instruction.operands:
        return None
    site.approximate = operation.approximate
    target, *sources = instruction.operands
    kinds = source_kinds(instruction.parts, len(sources))
    fetches = [decoder.fetch(each, kind) for each, kind in zip(sources, kinds, strict=True)]
    reads_carry, writes_carry = operation.reads_carry, operation.writes_carry
    constant = bool(sources) and isinstance(sources[-1], Immediate)
    if constant and operation.by_constant is not None:
        operation = operation.by_constant
    contraction = decoder.decoded.contraction
    if decoder.position in contraction.products:
        return _handing_on(decoder, fetches, operation, contraction.products[decoder.position])
    if decoder.position in contraction.sums:
        return _taking(decoder, instruction, fetches, contraction.sums[decoder.position])
    run = operation.run
    targets: list[Operand] = [target.first, target.second] if isinstance(target, Pair) else [target]
    stores = [decoder.store(each, operation.extends_sign) for each in targets]
    if not (reads_carry or writes_carry) and len(stores) == 1 and isinstance(target, Register):
        return _plain(fetches, run, stores[0])

    def step(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        operands = [fetch(resident, activation, lanes) for fetch in fetches]
        if reads_carry:
            carry = activation.registers[CARRY]
            operands.append(np.zeros((1, 1), np.bool_) if carry is None else lanes.read(carry))
        result = run(*operands)
        results = list(result) if isinstance(result, tuple) else [result]
        if writes_carry:
            activation.write(CARRY, results.pop(), lanes)
        for store, value in zip(stores, results, strict=False):
            store(activation, value, lanes)

    return step


def _handing_on(decoder: Decoder, fetches: list[Fetch], operation: Operation, product: str) -> Step:
    """Return a step for a product that is not rounded: its register keeps one factor, a second register the other."""
    factors, slots = operation.factors, decoder.decoded.slots
    assert factors is not None
    first, second = slots[product], slots[_second_factor(product)]

    def hand_on(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        operands = [fetch(resident, activation, lanes) for fetch in fetches]
        for slot, value in zip((first, second), factors(*operands), strict=True):
            # For a `mul` these are the operands themselves, which may be written in place later.
            activation.write(slot, value if value.size == 1 else value.copy(), lanes)

    return hand_on


def _taking(decoder: Decoder, instruction: PtxInstruction, fetches: list[Fetch], product: int) -> Step:
    """Return a step for a sum of a product and another term, rounded once."""
    name, *flags = instruction.parts
    fused = arithmetic.bind(".".join(("fma", "rn", *flags)))
    assert fused is not None
    target, *terms = instruction.operands
    term = terms[product]
    assert isinstance(term, Register)
    first, second = fetches[product], decoder.fetch(Register(_second_factor(term.name)), "f32")
    other, store = fetches[1 - product], decoder.store(target)
    none, sign = np.uint32(0), np.uint32(1 << 31)
    of_product, of_other = (none, none) if name == "add" else (none, sign) if product == 0 else (sign, none)

    def take(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        a, b, c = (fetch(resident, activation, lanes) for fetch in (first, second, other))
        result = fused.run(a, b ^ of_product, c ^ of_other)
        assert not isinstance(result, tuple)
        store(activation, result, lanes)

    return take


def _second_factor(product: str) -> str:
    """Return the name of the extra register that keeps the other factor of a product."""
    return f"{product}, factor"


def _plain(fetches: list[Fetch], run: Callable[..., Any], store: Store) -> Step:
    """Return the step of an instruction with one result and no carry, which are most."""
    if len(fetches) == 1:
        (only,) = fetches

        def unary(resident: Resident, activation: Activation, lanes: Lanes) -> None:
            operand = only(resident, activation, lanes)
            result = run(operand)
            if isinstance(result, tuple):
                result = result[0]
            # A conversion may return its operand, which may be written in place later.
            store(activation, result.copy() if np.may_share_memory(result, operand) else result, lanes)

        return unary

    def plain(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        result = run(*[fetch(resident, activation, lanes) for fetch in fetches])
        store(activation, result[0] if isinstance(result, tuple) else result, lanes)

    return plain


def bind_moves(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind `mov`, packing and unpacking, addresses of variables, and conversions between address spaces."""
    parts = instruction.parts
    if parts[0] == "cvta":
        return _bind_cvta(decoder, instruction)
    if parts[0] == "isspacep":
        return _bind_isspacep(decoder, instruction)
    if parts[0] != "mov":
        return None
    target, source = instruction.operands
    fetch, store = decoder.fetch(source, parts[-1]), decoder.store(target)
    fresh = not isinstance(source, Register)

    def move(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        value = fetch(resident, activation, lanes)
        store(activation, value if fresh or value.size == 1 else value.copy(), lanes)

    return move


def _bind_cvta(decoder: Decoder, instruction: PtxInstruction) -> Step:
    parts = instruction.parts
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(parts[-2].partition("::")[0], 0)
    if parts[-1] != "u64":
        raise NeedsGpu(f"`{instruction.opcode}`")
    shift = np.uint64(-window % 2**64 if "to" in parts else window)
    fetch, store = decoder.fetch(instruction.operands[1], "u64"), decoder.store(instruction.operands[0])

    def convert(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        value = fetch(resident, activation, lanes).astype(np.uint64, copy=False)
        store(activation, value + shift, lanes)

    return convert


def _bind_isspacep(decoder: Decoder, instruction: PtxInstruction) -> Step:
    space, _, where = instruction.parts[1].partition("::")
    inside = np.uint64(WINDOW_BYTES * (1 + CLUSTER_BLOCKS if where == "cluster" else 1))
    fetch, store = decoder.fetch(instruction.operands[1], "u64"), decoder.store(instruction.operands[0])

    def test(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        address = fetch(resident, activation, lanes)
        if space in ("shared", "local"):
            window = np.uint64(SHARED_WINDOW if space == "shared" else LOCAL_WINDOW)
            answer = (address >= window) & (address < window + inside)
        elif space == "global":
            answer = address < np.uint64(SHARED_WINDOW)
        else:
            answer = np.zeros((1, 1), np.bool_)
        store(activation, answer, lanes)

    return test
