"""`wmma.load`, `wmma.mma` and `wmma.store`, with the fragments of `fragments`.

Worker-only: imports numpy. A multiplicand's fragment has as many registers as the ISA's table says; float16 ones always
have eight and repeat their elements, as the first tensor cores needed.
"""

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.matrix.formats import BITS
from kernel_lsp.emulate.matrix.fragments import WARP, Fragment, accumulator, multiplicand_a, multiplicand_b
from kernel_lsp.emulate.matrix.mma import bind_product, multiplication, sizes
from kernel_lsp.emulate.matrix.operation import MatrixAccess, MatrixOperation

Bits: TypeAlias = NDArray[Any]

_SHAPES = {
    "m16n16k16": {"f16", "bf16", "s8", "u8"},
    "m32n8k16": {"f16", "bf16", "s8", "u8"},
    "m8n32k16": {"f16", "bf16", "s8", "u8"},
    "m16n16k8": {"tf32"},
    "m8n8k4": {"f64"},
    "m8n8k32": {"s4", "u4"},
    "m8n8k128": {"b1"},
}
_ACCUMULATORS = {
    "f16": {"f16", "f32"},
    **{kind: {"f32"} for kind in ("bf16", "tf32")},
    **{kind: {"s32"} for kind in ("s8", "u8", "s4", "u4", "b1")},
    "f64": {"f64"},
}
_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared"}


def bind(opcode: str, arch: int) -> MatrixAccess | MatrixOperation | None:
    """Return the operation of a `wmma` instruction on sm_`arch`; None if it is another instruction or unknown."""
    match opcode.split("."):
        case [
            "wmma",
            "load",
            ("a" | "b" | "c") as which,
            "sync",
            "aligned",
            ("row" | "col") as layout,
            shape,
            *rest,
            kind,
        ]:
            return _bind_access(False, which, layout, shape, rest, kind)
        case ["wmma", "store", "d", "sync", "aligned", ("row" | "col") as layout, shape, *rest, kind]:
            return _bind_access(True, "d", layout, shape, rest, kind)
        case ["wmma", "mma", "sync", "aligned", "row" | "col", "row" | "col", shape, *rest]:
            return _bind_mma(shape, rest, None, arch)
        case ["wmma", "mma", ("xor" | "and") as bits, "popc", "sync", "aligned", "row", "col", shape, *rest]:
            return _bind_mma(shape, rest, bits, arch)
        case _:
            return None


def _bind_mma(shape: str, rest: list[str], bitwise: str | None, arch: int) -> MatrixOperation | None:
    saturate = "satfinite" in rest
    kinds = [word for word in rest if word not in ("satfinite", "rn")]
    if len(kinds) == 2:  # float16 multiplicands are not named
        kinds = [kinds[0], "f16", "f16", kinds[1]]
    if len(kinds) != 4 or not {kinds[1], kinds[2]} <= _SHAPES.get(shape, set()):
        return None
    d, a, b, c = kinds
    # NVIDIA's assembler makes two products of depth 4, on every architecture.
    step = 4 if a == "tf32" else 0
    product = bind_product(d, a, b, c, arch, saturate, bitwise, step)
    return product and multiplication(
        product, _fragment("a", shape, a), _fragment("b", shape, b), _fragment("c", shape, c), _fragment("d", shape, d)
    )


def _fragment(which: str, shape: str, kind: str) -> Fragment:
    m, n, k = sizes(shape)
    registers = 8 if kind == "f16" else None
    if which == "a":
        return multiplicand_a(m, k, BITS[kind], registers)
    return multiplicand_b(k, n, BITS[kind], registers) if which == "b" else accumulator(m, n, BITS[kind])


def _bind_access(store: bool, which: str, layout: str, shape: str, rest: list[str], kind: str) -> MatrixAccess | None:
    kinds = _SHAPES.get(shape, set[str]())
    if which in "cd":
        kinds = {accumulated for multiplicand in kinds for accumulated in _ACCUMULATORS[multiplicand]}
    if kind not in kinds or len(rest) > 1 or not set(rest) <= set(_SPACES):
        return None
    return _access(_fragment(which, shape, kind), store, layout, _SPACES[rest[0]] if rest else "")


@cache
def _access(fragment: Fragment, store: bool, layout: str, space: str) -> MatrixAccess:
    """Return accesses of elements that are adjacent both in a register and in memory; repeated elements are read
    once.
    """
    distinct = fragment.rows * fragment.columns // WARP
    row, column = np.divmod(fragment.place[:, :distinct], fragment.columns)
    major, minor = (row, column) if layout == "row" else (column, row)
    leading = fragment.columns if layout == "row" else fragment.rows
    # Neighbours within a register are neighbours in memory, or else each is accessed by itself.
    each = min(distinct, fragment.register // fragment.bits) if fragment.bits < 32 else min(distinct, 2)
    together = each > 1 and bool((np.diff(minor.reshape(WARP, -1, each)) == 1).all())
    run = each if together else 1
    width = run * fragment.bits // 8
    major, minor = major[:, ::run], minor[:, ::run]
    registers = fragment.registers

    def addresses(address: Bits, stride: Bits | None) -> Bits:
        step = np.broadcast_to(np.uint64(leading) if stride is None else stride.astype(np.uint64), address.shape)
        base = address.astype(np.uint64).reshape(-1, WARP, 1)
        elements = major.astype(np.uint64) * step.reshape(-1, WARP, 1) + minor.astype(np.uint64)
        return (base + elements * np.uint64(fragment.bits) // np.uint64(8)).reshape(address.size, -1)

    def to_registers(data: Bits) -> tuple[Bits, ...]:
        words = np.ascontiguousarray(data).reshape(len(data), -1).view(f"<u{fragment.register // 8}")
        return tuple(np.ascontiguousarray(words[:, i % words.shape[1]]) for i in range(registers))

    def to_data(*values: Bits) -> Bits:
        words = np.stack(values, axis=1).astype(f"<u{fragment.register // 8}", copy=False)
        return words.view(np.uint8).reshape(len(words), -1, width)

    return MatrixAccess(store, space, width, major.shape[1], np.ones(WARP, np.bool_), addresses, to_registers, to_data)
