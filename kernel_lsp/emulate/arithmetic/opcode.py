"""Parses a PTX opcode into name, modifiers and types."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Type:
    """Return a scalar or packed PTX type.

    `kind` is u (unsigned), s (signed), b (untyped), f (floating point) or p (predicate); `bits` the size of one value,
    all packed elements together; `lanes` how many elements are packed; `element` the name of one.
    """

    name: str
    kind: str
    bits: int
    lanes: int = 1
    element: str = ""

    @property
    def raw(self) -> type[np.unsignedinteger]:
        """Return numpy's type of the raw bits; 8-bit values live in 16-bit registers."""
        return UNSIGNED[self.bits]

    @property
    def register(self) -> np.dtype[np.generic]:
        """Return numpy's type of the register: that of the raw bits, bool for a predicate."""
        return np.dtype(np.bool_ if self.kind == "p" else self.raw)


UNSIGNED: dict[int, type[np.unsignedinteger]] = {8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, type[np.signedinteger]] = {8: np.int16, 16: np.int16, 32: np.int32, 64: np.int64}

_FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_BYTES = ("e4m3", "e5m2", "e2m3", "e3m2", "ue8m0")
_PACKED = {"f16": 16, "bf16": 16, "f32": 32, "u16": 16, "s16": 16, **dict.fromkeys(_BYTES, 8)}
TYPES: dict[str, Type] = {
    **{f"{kind}{bits}": Type(f"{kind}{bits}", kind, bits) for kind in "usb" for bits in (8, 16, 32, 64)},
    **{name: Type(name, "f", bits, element=name) for name, bits in _FLOATS.items()},
    "tf32": Type("tf32", "f", 32, element="tf32"),
    "pred": Type("pred", "p", 1),
    **{
        f"{name}x2": Type(f"{name}x2", name[0] if name in ("u16", "s16") else "f", 2 * bits, 2, name)
        for name, bits in _PACKED.items()
    },
    "e2m1x2": Type("e2m1x2", "f", 8, 2, "e2m1"),
}


@dataclass(frozen=True)
class Opcode:
    """A parsed opcode: `flags` are the modifiers that are no types, `types` the types, each in their order."""

    name: str
    flags: tuple[str, ...]
    types: tuple[Type, ...]

    @property
    def type(self) -> Type:
        """Return the first type: the result's."""
        return self.types[0]

    def has(self, flag: str) -> bool:
        """Return True if the modifier is present."""
        return flag in self.flags

    def only(self, *allowed: str) -> bool:
        """Return True if all modifiers are among these, none of them twice."""
        return len(set(self.flags)) == len(self.flags) and set(self.flags) <= set(allowed)

    def one_of(self, *choices: str, default: str = "") -> str | None:
        """Return the only one of these modifiers that is present, `default` if none is, None if several are."""
        found = [flag for flag in self.flags if flag in choices]
        return default if not found else found[0] if len(found) == 1 else None


def decode(opcode: str) -> Opcode | None:
    """Parse an opcode such as `cvt.rn.satfinite.e4m3x2.f32`; None if it names no type."""
    name, *parts = opcode.split(".")
    types = tuple(TYPES[part] for part in parts if part in TYPES)
    flags = tuple(part for part in parts if part not in TYPES)
    return Opcode(name, flags, types) if types else None
