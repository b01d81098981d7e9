"""Parses PTX text into records."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from kernel_lsp.emulate.errors import EmulatorFault
from kernel_lsp.emulate.program import (
    Address,
    Arguments,
    Function,
    Guard,
    Immediate,
    Location,
    Negated,
    Operand,
    Pair,
    Program,
    PtxInstruction,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from kernel_lsp.source.compiler_paths import unescaped

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
# A statement starts at one of these; `.loc` and `.file` end with their line.
_STATEMENT = re.compile(
    r"""\s*(?:
        (?P<loc>\.loc\s[^\n]*) | (?P<line>\.(?:file|version|target|address_size)\b[^\n]*)
      | (?P<section>\.section\b[^{]*\{[^}]*\})
      | (?P<open>\{) | (?P<close>\})
      | (?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)
      | (?P<function>(?:\.(?:visible|weak|extern|common)\s+)*\.(?:entry|func)\b[^{;]*)
      | (?P<text>[^;]*);
    )""",
    re.X | re.S,
)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
# LLVM writes the chain of inlined calls in a comment: `// a.py:187:33 @[ b.py:26:64 @[ c.py:3:1 ] ]`.
_LLVM_LOC = re.compile(r"^(\s*\.loc\s[^\n/]*)//([^\n]*)$", re.M)
_AT = re.compile(r"@\[\s*(.+?):(\d+):(\d+)")
_HEAD = re.compile(
    r"\.(?P<kind>entry|func)\b\s*(?P<attributes>(?:\.attribute\([^)]*\)\s*)?)(?:\((?P<results>[^()]*)\))?\s*"
    r"(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^()]*)\))?(?P<rest>.*)",
    re.S,
)
_BOUNDS = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)*(?:\.align\s+\d+\s+)?(?:\d+\s+)?)?"
    r"(?P<name>[\w$%]+)\s*(?:\[(?P<count>\d*)\])?"
)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(?P<space>global|const|shared|local|param)\s+"
    r"(?P<attributes>(?:\.(?:align\s+\d+|attribute\([^)]*\)|managed|surfref|samplerref|texref)\s*)*)\s*"
    r"(?:\.(?P<vector>v[24])\s+)?\.(?P<type>[suf]\d+|b\d+|pred|texref|surfref|samplerref)\s+(?P<name>[\w$%]+)\s*"
    r"(?P<dimensions>(?:\[[^\]]*\]\s*)*)(?:=\s*(?P<initial>.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+(.*)", re.S)
_INSTRUCTION = re.compile(
    r"(?:@(?P<negated>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)", re.S
)
_OPERAND = re.compile(
    r"\s*(\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|[^,\s{}\[\]()]+(?:\s*\|\s*[^,\s]+)?(?:\s*\+\s*-?\d+)?)\s*(,|$)"
)
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_NAMED = re.compile(r"([\w$%.]+)(?:\s*([+-])\s*(-?(?:0[xX])?[0-9a-fA-F]+))?$")

_SIZES = {
    "pred": 1,
    "texref": 8,
    "surfref": 8,
    "samplerref": 8,
    "e2m1x2": 1,
    "e2m1x4": 2,
    **{f"{kind}x{n}": n for kind in ("e4m3", "e5m2", "e2m3", "e3m2", "ue8m0") for n in (2, 4)},
}


@cache
def type_bytes(name: str) -> int:
    """Return the bytes of a PTX type such as `u32`, `bf16x2` or `b128`."""
    if (size := _SIZES.get(name)) is not None:
        return size
    digits = re.fullmatch(r"[a-z]+(\d+)(?:x(\d))?", name)
    if digits is None:
        raise EmulatorFault(f"PTX type .{name} is unknown.")
    return int(digits[1]) * int(digits[2] or 1) // 8


@lru_cache(16)
def load(ptx: str) -> Program:
    """Read a PTX module.

    Raises:
        EmulatorFault: the text is not PTX as compilers write it.
    """
    reader = _Reader({int(number): unescaped(path) for number, path in _FILE.findall(ptx)})
    text = _COMMENT.sub("", _LLVM_LOC.sub(_keep_chain, ptx))
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _STATEMENT.match(text, position)
        if match is None or match.end() == position:
            raise EmulatorFault(f"PTX cannot be read at {text[position : position + 60].strip()!r}.")
        position = match.end()
        reader.statement(match)
    return Program(reader.target, reader.functions, reader.variables)


def _keep_chain(match: re.Match[str]) -> str:
    return match[1] + "".join(f" @[{file}:{line}:{column}" for file, line, column in _AT.findall(match[2]))


@dataclass
class _Reader:
    """The parser's state: the module, and the open function."""

    files: dict[int, str]
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    variables: dict[str, Variable] = field(default_factory=dict[str, Variable])
    body: _Body | None = None
    head: re.Match[str] | None = None

    def statement(self, match: re.Match[str]) -> None:
        kind, content = match.lastgroup, match[match.lastgroup or 0]
        body = self.body
        if kind == "line":
            if content.startswith(".target"):
                self.target = content.split()[1].rstrip(",")
        elif kind == "loc":
            if body is not None:
                body.location = self._location(content, body)
        elif kind == "function":
            self.head = _HEAD.search(content)
        elif kind == "open":
            if body is not None:
                body.enter()
            else:
                self.body = _Body(self.head["name"] if self.head else "")
        elif kind == "close":
            if body is not None and len(body.scopes) > 1:
                body.leave()
            elif body is not None:
                self._finish(body)
        elif kind == "label" and body is not None:
            # A label may also name a `.branchtargets` list or a prototype: the next statement tells.
            body.label(content)
        elif kind == "text":
            self._text(content.strip())

    def _text(self, text: str) -> None:
        body = self.body
        if not text:
            self.head = None  # `;` after the head of a function that is only declared
        elif body is None:
            if (match := _VARIABLE.match(text)) and (variable := _variable(match)):
                self.variables.setdefault(variable.name, variable)
        elif text.startswith(".reg"):
            body.declare(text)
        elif text.startswith(".branchtargets"):
            body.table(text)
        elif text.startswith("."):
            if match := _VARIABLE.match(text):
                body.variables.append(_variable(match))
        else:
            body.instruction(text)

    def _location(self, text: str, body: _Body) -> Location | None:
        match = _LOC.match(text)
        if match is None:
            return None
        outer: Location | None = None
        if match[4]:
            key = (int(match[4]), int(match[5]), int(match[6]))
            outer = body.seen.get(key) or Location(self.files.get(key[0], ""), key[1], key[2])
        else:
            for file, line, column in reversed(_AT.findall(text)):
                path = next((path for path in self.files.values() if path.rpartition("/")[2] == file), file)
                outer = Location(path, int(line), int(column), outer)
        number, line, column = int(match[1]), int(match[2]), int(match[3])
        at = Location(self.files.get(number, ""), line, column, outer)
        body.seen[number, line, column] = at
        return at if line else body.location

    def _finish(self, body: _Body) -> None:
        head = self.head
        if head is None:
            raise EmulatorFault("PTX has code outside a function.")
        bounds = _BOUNDS.search(head["rest"])
        name = head["name"]
        cluster = _CLUSTER.search(head["rest"])
        self.functions[name] = Function(
            name=name,
            entry=head["kind"] == "entry",
            parameters=_parameters(head["parameters"]),
            results=_parameters(head["results"]),
            registers=body.registers,
            variables=tuple(body.variables),
            code=tuple(body.code),
            labels=body.labels,
            tables=body.tables,
            max_threads=None if bounds is None else (int(bounds[1]), int(bounds[2] or 1), int(bounds[3] or 1)),
            cluster=None if cluster is None else (int(cluster[1]), int(cluster[2] or 1), int(cluster[3] or 1)),
        )
        self.body = self.head = None


@dataclass
class _Body:
    """A function being read. Registers and labels of inner scopes (inline assembly) get names of their own."""

    name: str
    location: Location | None = None
    scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])
    inner_labels: list[tuple[int, dict[str, str]]] = field(default_factory=list[tuple[int, dict[str, str]]])
    ranges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    registers: dict[str, str] = field(default_factory=dict[str, str])
    variables: list[Variable] = field(default_factory=list[Variable])
    code: list[PtxInstruction] = field(default_factory=list[PtxInstruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    seen: dict[tuple[int, int, int], Location] = field(default_factory=dict[tuple[int, int, int], Location])
    last_label: str = ""
    operands: dict[str, Operand] = field(default_factory=dict[str, Operand])

    def declare(self, text: str) -> None:
        match = _REGISTERS.match(text)
        if match is None:
            raise EmulatorFault(f"PTX declaration {text!r} cannot be read.")
        scope = self.scopes[-1]
        for item in match[2].split(","):
            name, _, count = item.strip().rstrip(">").partition("<")
            names = [f"{name}{index}" for index in range(int(count))] if count else [name]
            for each in names:
                unique = (
                    each if len(self.scopes) == 1 and each not in self.registers else f"{each}@{len(self.registers)}"
                )
                scope[each] = unique
                self.registers[unique] = match[1]
        self.operands.clear()

    def enter(self) -> None:
        self.scopes.append({})
        self.inner_labels.append((len(self.code), {}))

    def leave(self) -> None:
        """Close a scope; branches in it go to its own labels."""
        self.scopes.pop()
        start, own = self.inner_labels.pop()
        for position in range(start, len(self.code) if own else start):
            instruction = self.code[position]
            target = instruction.operands[0] if instruction.operands else None
            if instruction.parts[0] == "bra" and isinstance(target, Symbol) and target.name in own:
                self.code[position] = replace(instruction, operands=(Symbol(own[target.name]),))

    def label(self, name: str) -> None:
        if self.inner_labels:
            own = f"{name}@{len(self.code)}"
            self.inner_labels[-1][1][name] = own
            name = own
        self.labels[name] = len(self.code)
        self.last_label = name

    def table(self, text: str) -> None:
        self.tables[self.last_label] = tuple(item.strip() for item in text.removeprefix(".branchtargets").split(","))
        self.labels.pop(self.last_label, None)

    def instruction(self, text: str) -> None:
        match = _INSTRUCTION.match(text)
        if match is None:
            raise EmulatorFault(f"PTX instruction {text!r} cannot be read.")
        guard = Guard(Register(self.resolve(match["guard"])), bool(match["negated"])) if match["guard"] else None
        operands = tuple(map(self.operand, split_operands(match["operands"])))
        self.code.append(PtxInstruction(match["opcode"], operands, guard, self.location))

    def resolve(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def operand(self, text: str) -> Operand:
        if len(self.scopes) > 1:
            return self._operand(text)
        known = self.operands.get(text)
        if known is None:
            known = self.operands[text] = self._operand(text)
        return known

    def _operand(self, text: str) -> Operand:
        if text == "_":
            return Sink()
        first = text[0]
        if first == "{":
            return Vector(tuple(map(self.operand, split_operands(text[1:-1]))))
        if first == "(":
            return Arguments(tuple(map(self.operand, split_operands(text[1:-1]))))
        if first == "[":
            inner = text[1:-1].strip()
            if "," in inner:
                return Vector(tuple(map(self.operand, split_operands(inner))))
            return self._address(inner)
        if first == "!":
            return Negated(self.operand(text[1:].strip()))
        if "|" in text:
            one, two = text.split("|")
            return Pair(self.operand(one.strip()), self.operand(two.strip()))
        if (constant := immediate(text)) is not None:
            return constant
        match = _NAMED.match(text)
        if match is None:
            raise EmulatorFault(f"PTX operand {text!r} cannot be read.")
        name = self.resolve(match[1])
        if name in self.registers:
            return Register(name)
        if name.startswith("%") and not match[2]:
            return Special(name)
        return Symbol(name, _offset(match))

    def _address(self, text: str) -> Address:
        if (constant := immediate(text)) is not None:
            return Address(constant)
        match = _NAMED.match(text)
        if match is None:
            raise EmulatorFault(f"PTX address [{text}] cannot be read.")
        name = self.resolve(match[1])
        return Address(Register(name) if name in self.registers else Symbol(name), _offset(match))


def _offset(match: re.Match[str]) -> int:
    offset = int(match[3], 0) if match[3] else 0
    return -offset if match[2] == "-" else offset


def split_operands(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    items: list[str] = []
    depth = start = 0
    for position, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    if depth:
        raise EmulatorFault(f"PTX operands {text!r} cannot be read.")
    last = text[start:].strip()
    if last:
        items.append(last)
    return items


def immediate(text: str) -> Immediate | None:
    """Return a constant; None if the text is none. `WARP_SZ` is the only identifier that the PTX ISA predefines."""
    if text == "WARP_SZ":
        return Immediate(32)
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return Immediate(int(text[2:], 16), "f32")
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return Immediate(int(text[2:], 16), "f64")
    if not _INTEGER.match(text):
        return None
    text = text.rstrip("U")
    digits = text.lstrip("-")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    return Immediate(int(text, 8) if octal else int(text, 0))


def _parameters(text: str | None) -> tuple[Variable, ...]:
    found: list[Variable] = []
    for match in _PARAMETER.finditer(text or ""):
        size = type_bytes(match["type"])
        align = int(match["align"] or size)
        count = 1 if match["count"] is None else int(match["count"] or 0)
        found.append(Variable(match["name"], "param", size * count, align))
    return tuple(found)


def _variable(match: re.Match[str]) -> Variable:
    kind = match["type"]
    element = type_bytes(kind) * int((match["vector"] or "v1")[1:])
    count, unsized = 1, False
    for dimension in re.findall(r"\[([^\]]*)\]", match["dimensions"]):
        unsized |= not dimension.strip()
        count *= int(dimension) if dimension.strip() else 0
    align = re.search(r"\.align\s+(\d+)", match["attributes"])
    data, relocations = _initial(match["initial"], kind) if match["initial"] else (b"", ())
    return Variable(
        name=match["name"],
        space=match["space"],
        size=max(element * count, len(data) if unsized else 0),
        align=int(align[1]) if align else element,
        initial=data,
        relocations=relocations,
    )


def _initial(text: str, kind: str) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    size = type_bytes(kind)
    data = bytearray()
    relocations: list[tuple[int, str, int]] = []
    for item in split_operands(re.sub(r"[{}]", "", text)):
        constant = immediate(item)
        if constant is None:
            named = re.search(r"([A-Za-z_$][\w$]*)\)?\s*(?:\+\s*(\d+))?$", item)
            if named is None or size != 8:
                raise EmulatorFault(f"PTX initial value {item!r} cannot be read.")
            relocations.append((len(data), named[1], int(named[2] or 0)))
            data += bytes(8)
        else:
            data += immediate_bits(constant, kind).to_bytes(size, "little")
    return bytes(data), tuple(relocations)


def immediate_bits(constant: Immediate, kind: str) -> int:
    """Return the bits of a constant as a value of PTX type `kind`."""
    if kind == "pred":
        return int(constant.bits != 0)
    size = type_bytes(kind)
    bits = constant.bits
    if constant.kind == "f64" and size == 4:
        (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    elif constant.kind == "f32" and size == 8 and kind[0] == "f":
        (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    elif constant.kind == "int" and kind in ("f32", "f64"):
        bits = int.from_bytes(struct.pack("<f" if size == 4 else "<d", float(bits)), "little")
    return bits & ((1 << (8 * size)) - 1)
