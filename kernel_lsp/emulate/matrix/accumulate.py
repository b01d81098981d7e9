"""How tensor cores add: a model of their sums that is exact to the bit as far as it was measured.

Worker-only: imports numpy.

A tensor core multiplies exactly, but does not add like IEEE arithmetic. It takes a block of products together with the
accumulator, shifts all significands to the largest exponent among them, drops what falls below a fixed number of bits,
adds exactly and truncates the sum to float32 (a float16 sum is rounded to nearest even). Longer products go block by
block. The size of a block and the bits kept are properties of the architecture:

M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7
(2021) e330, found the scheme; F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004,
measured its parameters. On the 220,000 sums those authors recorded on V100, A100, A2, Ada, H100, H200 and B200 and
published, what is here agrees in every bit, in all types that `mma.sync` and `wmma` have there.

With E the largest exponent of a block of p products and k bits kept below the binary point, one block differs from the
exact sum by less than (p + 1) 2**(E - k) plus the rounding of the result.

Products of 8-bit floats by `wgmma` agree in every bit with the 7 pipelines of them that an H200 ran in
`tests/bench/random_pipelines.py`; with a block of 16, or with one bit more or less, they do not.

Not measured: Turing, whose model here is Volta's; 8-bit floats on sm_120; the least exponent of `wgmma` of 8-bit
floats; the sign of a sum of zeros (here: positive).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.matrix.formats import SMALLEST_EXPONENT, Values, to_float32_toward_zero

_NEVER = -10_000
_NO_LIMIT = -300  # below every product's exponent, while its power of two still is a float64


@dataclass(frozen=True)
class Adder:
    """The parameters of an architecture's sums for one pair of types.

    Attributes:
        block: products added at once.
        kept: bits kept below the binary point of the largest term.
        smallest: the least exponent terms are aligned to.
        result: bits kept below the binary point of the result, 23 for all of a float32.
    """

    block: int
    kept: int
    smallest: int
    result: int = 23


WARPGROUP_BYTES = {"f32": Adder(32, 13, -133, 13), "f16": Adder(32, 13, -133)}
"""The adders of `wgmma` for 8-bit floats, by the type of the sums. They keep some 14 bits: DeepSeek-AI, "DeepSeek-V3
Technical Report", arXiv:2412.19437, section 3.3.2, found that on H800. A float32 sum is truncated once more; a float16
sum is rounded from all that was added. The least exponent is that of other types on sm_90."""


def adder(arch: int, kind: str, accumulator: str) -> Adder:
    """Return the adder of sm_`arch` for multiplicands of type `kind` and sums of type f16 or f32."""
    narrow = accumulator == "f16"
    if arch < 80:
        return Adder(4, 23, -19 if narrow else _NO_LIMIT)
    if arch < 90:
        if kind in ("e4m3", "e5m2"):
            return Adder(16, 13, -132, 23 if narrow else 13)
        return Adder(4 if kind == "tf32" else 8, 24, -20 if narrow else -132)
    block = {"tf32": 8, "e4m3": 32, "e5m2": 32}.get(kind, 16)
    return Adder(block, 25, -21 if narrow and kind == "f16" else -133)


def multiply_add(a: Values, b: Values, c: Values, kind_a: str, kind_b: str, accumulator: str, how: Adder) -> Values:
    """Return A B + C as the tensor cores compute it, with the accumulator's rounding.

    Args:
        a: (warps, M, K) values of type `kind_a`.
        b: (warps, K, N) values of type `kind_b`.
        c: (warps, M, N) values of type f16 or f32.
        kind_a: a multiplicand's type says where its subnormals begin.
        kind_b: likewise.
        accumulator: the type of the sum after each block.
        how: the adder.
    """
    left, right = np.swapaxes(a, 1, 2)[:, :, :, None], b[:, :, None, :]
    left_exponent, right_exponent = _exponents(left, kind_a), _exponents(right, kind_b)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, b.shape[1], how.block):
            part = slice(start, start + how.block)
            largest = (left_exponent[:, part] + right_exponent[:, part]).max(axis=1)
            c = _add(left[:, part] * right[:, part], largest, c, accumulator, how)
    return c


def _exponents(x: Values, kind: str) -> NDArray[np.int16]:
    """Return the exponents of numbers as stored: subnormals have the least one, and a zero never the largest."""
    exponents = np.maximum(np.frexp(x)[1] - 1, SMALLEST_EXPONENT[kind])
    return np.where(x == 0, _NEVER, exponents).astype(np.int16)


def _add(terms: Values, largest: NDArray[np.int16], c: Values, accumulator: str, how: Adder) -> Values:
    """Add one block to c: exact products (warps, block, M, N), which it overwrites, with their largest exponents."""
    largest = np.maximum(np.maximum(largest, _exponents(c, "f32")), how.smallest)
    scale = np.ldexp(1.0, how.kept - largest.astype(np.int32))
    terms *= scale[:, None]
    total = (np.trunc(terms, out=terms).sum(axis=1) + np.trunc(c * scale)) / scale
    if how.result < 23:
        unit = np.ldexp(1.0, how.result + 1 - np.frexp(total)[1])
        total = np.trunc(total * unit) / unit
    rounded = total.astype(np.float16) if accumulator == "f16" else to_float32_toward_zero(total)
    return rounded.astype(np.float64) + 0.0
