"""`mma.sync` and the arithmetic of `wmma.mma`.

Worker-only: imports numpy. Integer, bit and float64 products are exact; `accumulate` defines floating-point
sums.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import arithmetic
from kernel_lsp.emulate.matrix.accumulate import WARPGROUP_BYTES, adder, multiply_add
from kernel_lsp.emulate.matrix.formats import BITS, Values, float_bits, values
from kernel_lsp.emulate.matrix.fragments import WARP, Fragment, accumulator, multiplicand_a, multiplicand_b
from kernel_lsp.emulate.matrix.operation import MatrixOperation

Bits: TypeAlias = NDArray[Any]
_WARPS_AT_ONCE = 16  # keeps the terms of a sum in the processor's cache

Product: TypeAlias = Callable[[Bits, Bits, Bits], Bits]
"""Computes raw matrices D from raw A (warps, M, K), B (warps, K, N) and C (warps, M, N)."""

_SHAPES = {
    "m8n8k4": {"f64"},
    "m8n8k16": {"s8", "u8"},
    "m8n8k32": {"s4", "u4"},
    "m8n8k128": {"b1"},
    "m16n8k4": {"tf32", "f64"},
    "m16n8k8": {"f16", "bf16", "tf32", "f64"},
    "m16n8k16": {"f16", "bf16", "f64", "s8", "u8", "e4m3", "e5m2"},
    "m16n8k32": {"s8", "u8", "s4", "u4", "e4m3", "e5m2"},
    "m16n8k64": {"s4", "u4"},
    "m16n8k128": {"b1"},
    "m16n8k256": {"b1"},
}
_FAMILIES = ({"f16"}, {"bf16"}, {"tf32"}, {"f64"}, {"e4m3", "e5m2"}, {"s8", "u8"}, {"s4", "u4"}, {"b1"})


def bind(opcode: str, arch: int) -> MatrixOperation | None:
    """Return the operation of a dense `mma.sync` on sm_`arch`; None if it is another instruction or unknown."""
    match opcode.split("."):
        case ["mma", "sync", "aligned", shape, "row", "col", *rest]:
            pass
        case _:
            return None
    saturate = "satfinite" in rest
    bitwise = next((word for word in ("xor", "and") if word in rest), None)
    kinds = [word for word in rest if word not in ("satfinite", "xor", "and", "popc")]
    if len(kinds) != 4 or not {kinds[1], kinds[2]} <= _SHAPES.get(shape, set()):
        return None
    m, n, k = sizes(shape)
    product = bind_product(kinds[0], kinds[1], kinds[2], kinds[3], arch, saturate, bitwise)
    return product and multiplication(
        product,
        multiplicand_a(m, k, BITS[kinds[1]]),
        multiplicand_b(k, n, BITS[kinds[2]]),
        accumulator(m, n, BITS[kinds[3]]),
        accumulator(m, n, BITS[kinds[0]]),
    )


def sizes(shape: str) -> tuple[int, int, int]:
    """Return M, N and K of a shape such as `m16n8k16`."""
    m, rest = shape.removeprefix("m").split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def multiplication(product: Product, a: Fragment, b: Fragment, c: Fragment, d: Fragment) -> MatrixOperation:
    """Return the product of matrices as an operation on the registers that hold them."""

    def run(active: Bits, *operands: tuple[Bits, ...]) -> tuple[Bits, ...]:
        warps = np.flatnonzero(active.reshape(-1, WARP).any(axis=1))
        matrices = (
            fragment.gather(tuple(register.reshape(-1, WARP)[warps].reshape(-1) for register in registers))
            for fragment, registers in zip((a, b, c), operands, strict=True)
        )
        results: list[Bits] = []
        for register in d.scatter(product(*matrices)):
            whole = np.zeros((active.size // WARP, WARP), register.dtype)
            whole[warps] = register.reshape(-1, WARP)
            results.append(whole.reshape(-1))
        return tuple(results)

    return MatrixOperation(run)


@cache
def bind_product(
    d: str,
    a: str,
    b: str,
    c: str,
    arch: int,
    saturate: bool = False,
    bitwise: str | None = None,
    step: int = 0,
    warpgroup: bool = False,
) -> Product | None:
    """Return the product of matrices with elements of types a, b and c as elements of type d; None if there is none.

    Floating-point sums take `step` products at a time, if the hardware's instruction has fewer than this one. The
    product may be that of a `warpgroup`, which multiplies 8-bit floats by itself.
    """
    if not any({a, b} <= family for family in _FAMILIES):
        return None
    match c, d:
        case "s32", "s32" if a in ("s8", "u8", "s4", "u4") or (a == "b1" and bitwise):
            return partial(_integers, a, b, saturate, bitwise)
        case "f64", "f64" if a == "f64":
            return _doubles
        case (("f16" | "f32"), ("f16" | "f32")) if a in ("f16", "e4m3", "e5m2") and not saturate:
            if warpgroup and a in ("e4m3", "e5m2"):
                return partial(_bytes_of_warpgroups, d, a, b)
            return partial(_floats, d, a, b, c, arch, step)
        case "f32", "f32" if a in ("bf16", "tf32") and not saturate:
            return partial(_floats, d, a, b, c, arch, step)
        case _:
            return None


def _integers(kind_a: str, kind_b: str, saturate: bool, bitwise: str | None, a: Bits, b: Bits, c: Bits) -> Bits:
    """Multiply integers exactly: no sum of products of up to 8 bits exceeds the integers of float64."""
    left, right = values(kind_a, a), values(kind_b, b)
    total = left @ right
    if bitwise == "xor":
        total = left.sum(axis=2, keepdims=True) + right.sum(axis=1, keepdims=True) - 2 * total
    whole = total.astype(np.int64) + c.view(np.int32)
    if saturate:
        whole = whole.clip(-(2**31), 2**31 - 1)
    return whole.astype(np.uint32)


def _doubles(a: Bits, b: Bits, c: Bits) -> Bits:
    """Multiply by a chain of fused multiply-adds in ascending k, as the float64 tensor cores compute."""
    fused = arithmetic.bind("fma.rn.f64")
    assert fused is not None
    total = c.reshape(-1)
    for k in range(a.shape[2]):
        left, right = np.broadcast_arrays(a[:, :, k, None], b[:, k, None, :])
        total = cast(Bits, fused.run(left.reshape(-1), right.reshape(-1), total))
    return total.reshape(c.shape)


def _floats(d: str, kind_a: str, kind_b: str, c_kind: str, arch: int, step: int, a: Bits, b: Bits, c: Bits) -> Bits:
    wide = "f32" if "f32" in (d, c_kind) else "f16"
    by_halves = kind_a in ("e4m3", "e5m2") and 90 <= arch < 120
    parts: list[Bits] = []
    for start in range(0, len(a), _WARPS_AT_ONCE):
        part = slice(start, start + _WARPS_AT_ONCE)
        left, right, start_value = values(kind_a, a[part]), values(kind_b, b[part]), values(c_kind, c[part])
        if by_halves:
            parts.append(float_bits(d, _bytes_by_halves(left, right, start_value, wide, arch)))
        else:
            how = adder(arch, kind_a, wide)
            how = replace(how, block=min(how.block, step)) if step else how
            parts.append(float_bits(d, multiply_add(left, right, start_value, kind_a, kind_b, wide, how)))
    return np.concatenate(parts)


def _bytes_of_warpgroups(d: str, kind_a: str, kind_b: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """Multiply 8-bit floats as `wgmma` does, which keeps fewer bits of the sums than float32 has."""
    how = WARPGROUP_BYTES[d]
    products = (
        multiply_add(values(kind_a, a[part]), values(kind_b, b[part]), values(d, c[part]), kind_a, kind_b, d, how)
        for part in (slice(start, start + 1) for start in range(len(a)))
    )
    return np.concatenate([float_bits(d, product) for product in products])


def _bytes_by_halves(a: Values, b: Values, c: Values, wide: str, arch: int) -> Values:
    """Multiply 8-bit floats on architectures whose `mma.sync` has none (sm_90, sm_100).

    The assembler unpacks them to float16, multiplies the lower halves of all registers, then the upper ones onto that,
    and adds C with an ordinary addition.
    """
    how = adder(arch, "f16", wide)
    k = np.arange(a.shape[2])
    total = np.zeros_like(c)
    for half in (k % 4 < 2, k % 4 >= 2):
        total = multiply_add(a[:, :, half], b[:, half], total, "f16", "f16", wide, how)
    narrow = np.float16 if wide == "f16" else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        return (total.astype(narrow) + c.astype(narrow)).astype(np.float64)
