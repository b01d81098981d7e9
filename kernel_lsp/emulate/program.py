"""Records of a PTX module: functions, variables and instructions, as read by `emulate.ptx`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the source, from `.loc`.

    Attributes:
        file: as the compiler wrote it.
        line: from 1.
        column: from 1; 0 if unknown.
        inlined_at: the call that this code was inlined into, if any.
    """

    file: str
    line: int
    column: int = 0
    inlined_at: Location | None = None

    @property
    def chain(self) -> tuple[Location, ...]:
        """Return this place, then the calls it was inlined into, innermost first."""
        return (self, *(self.inlined_at.chain if self.inlined_at else ()))

    @property
    def own(self) -> Location:
        """Return the innermost place of the chain in the file of the outermost: the kernel's file, not a header."""
        outermost = self.chain[-1]
        return next(at for at in self.chain if at.file == outermost.file)

    def within(self, path: str | Path) -> Location | None:
        """Return the innermost place of the chain that lies in the file `path`."""
        wanted = Path(path)
        same = (at for at in self.chain if Path(at.file) == wanted)
        return next(same, None) or next((at for at in self.chain if Path(at.file).name == wanted.name), None)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register; `name` is unique in its function (those of inner scopes are renamed)."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or the bits of a float (`kind` is `int`, `f32` or `f64`)."""

    bits: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or function, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; offset in bytes."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c, d}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`%r1|%p1`: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p1` as a source."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: an unused result."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)` in a call."""

    items: tuple[Operand, ...]


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair | Negated | Sink | Arguments


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p1` or `@!%p1`."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction: `opcode` with all its modifiers (`ld.global.nc.v4.f32`)."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    location: Location | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the opcode split at its dots."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the module or of a function.

    Attributes:
        name: unique in the module for `.shared` and `.global`, in the function otherwise.
        space: `global`, `const`, `shared`, `local` or `param`.
        size: bytes; 0 for `extern` shared arrays, whose size the launch gives.
        align: bytes.
        initial: initial bytes, without the addresses in `relocations`.
        relocations: (offset, symbol, addend) of each 8-byte address of another variable in `initial`.
    """

    name: str
    space: str
    size: int
    align: int
    initial: bytes = b""
    relocations: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True)
class Function:
    """A kernel or device function.

    Attributes:
        name: mangled.
        entry: True for a kernel.
        parameters: in order, at the offsets that `parameter_offsets` tells.
        results: return values of a device function.
        registers: name -> type without the dot (`b32`, `pred`).
        variables: local and shared variables.
        code: instructions in order.
        labels: name -> index into `code`.
        tables: name of a `.branchtargets` list -> labels.
        max_threads: `.maxntid` or `.reqntid`, in x, y, z.
        cluster: blocks of a cluster in x, y, z, by `.reqnctapercluster`; None without clusters.
    """

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: dict[str, str] = field(repr=False)
    variables: tuple[Variable, ...]
    code: tuple[PtxInstruction, ...] = field(repr=False)
    labels: dict[str, int] = field(repr=False)
    tables: dict[str, tuple[str, ...]] = field(repr=False)
    max_threads: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None

    @cached_property
    def parameter_offsets(self) -> dict[str, int]:
        """Return byte offset of each parameter in the parameter block of a launch."""
        offsets: dict[str, int] = {}
        end = 0
        for parameter in self.parameters:
            offsets[parameter.name] = -(-end // parameter.align) * parameter.align
            end = offsets[parameter.name] + parameter.size
        return offsets

    @cached_property
    def parameter_bytes(self) -> int:
        """Return size of the parameter block."""
        last = self.parameters[-1] if self.parameters else None
        return 0 if last is None else self.parameter_offsets[last.name] + last.size


@dataclass(frozen=True, eq=False)
class Program:
    """A PTX module.

    Attributes:
        target: `sm_90a` and the like.
        functions: kernels and device functions by name; those declared only (`vprintf`) are not among them.
        variables: variables of the module, by name.
    """

    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]

    @cached_property
    def named(self) -> dict[str, frozenset[str]]:
        """Return function -> symbols that its instructions name: variables, labels, functions."""
        return {
            name: frozenset(
                symbol for each in function.code for operand in each.operands for symbol in _symbols(operand)
            )
            for name, function in self.functions.items()
        }

    @cached_property
    def placed(self) -> tuple[Variable, ...]:
        """Return the `.global` and `.const` variables that code can reach."""
        reached: set[str] = set[str]().union(*self.named.values())
        left = list(reached)
        while left:
            variable = self.variables.get(left.pop())
            new = {symbol for _, symbol, _ in variable.relocations} - reached if variable else set[str]()
            reached |= new
            left += new
        module = self.variables.values()
        return tuple(v for v in module if v.space in ("global", "const") and v.size and v.name in reached)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Return function -> number that represents its address."""
        return {name: number for number, name in enumerate(self.functions, start=1)}

    @property
    def kernels(self) -> tuple[Function, ...]:
        """Return the functions that can be launched."""
        return tuple(function for function in self.functions.values() if function.entry)


def _symbols(operand: Operand) -> tuple[str, ...]:
    if isinstance(operand, Symbol):
        return (operand.name,)
    if isinstance(operand, Address):
        return _symbols(operand.base)
    if isinstance(operand, Vector | Arguments):
        return tuple(name for item in operand.items for name in _symbols(item))
    return ()
