"""What a trial is, and the PTX around the instruction it tries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Trial:
    """One kernel `k(in, out)`, its launch, and what `out` then holds.

    Attributes:
        opcode: the instruction under test, with a note in brackets where it is tried in several ways.
        ptx: of the module.
        blocks: of the one-dimensional grid.
        threads: of a block.
        inputs: what `in` points to.
        initial: what `out` points to before the launch.
        expected: elements of `out` after it; of a floating-point type where distances mean something, else unsigned.
        defined: for which of them the ISA says what they are.
        instances: warps that execute the instruction.
    """

    opcode: str
    ptx: str
    blocks: int
    threads: int
    inputs: Array
    initial: Array
    expected: Array
    defined: Array
    instances: int


_MODULE = """.version 8.7
.target sm_{arch}
.address_size 64
{shared}
.visible .entry k(.param .u64 p_in, .param .u64 p_out){cluster}
{{
.reg .pred %q<8>; .reg .b16 %h<40>; .reg .b32 %r<160>; .reg .b64 %x<80>;
.reg .b32 %thread, %block, %threads, %g; .reg .b64 %in, %out, %at, %wide;
ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %threads, %ntid.x;
mad.lo.u32 %g, %block, %threads, %thread; mul.wide.u32 %wide, %g, 8;
{body}
ret;
}}
"""
_BITS = {"h": 16, "r": 32, "x": 64}


def module(arch: int | str, body: Sequence[str], shared: int = 0, cluster: int = 0) -> str:
    """A module around a body that finds `%in`, `%out`, `%thread`, `%block`, the thread's index `%g` and `%wide` = 8 %g.

    `cells` names the block's shared memory of `shared` bytes. So many blocks, if any, are a cluster.
    """
    space = f".shared .align 1024 .b8 cells[{shared}];" if shared else ""
    together = f" .explicitcluster .reqnctapercluster {cluster}, 1, 1" if cluster else ""
    return _MODULE.format(arch=arch, shared=space, cluster=together, body="\n".join(body))


def loads(registers: Sequence[str], n: int) -> list[str]:
    """Loads of operands: register i from the i-th array of n eight-byte words, a word for each thread."""
    lines: list[str] = []
    for i, register in enumerate(registers):
        lines.append(f"add.u64 %at, %in, {8 * n * i}; add.u64 %at, %at, %wide;")
        if register.startswith("%q"):
            lines.append(f"ld.global.b32 %r159, [%at]; setp.ne.u32 {register}, %r159, 0;")
        else:
            lines.append(f"ld.global.b{_BITS[register[1]]} {register}, [%at];")
    return lines


def stores(registers: Sequence[str], n: int) -> list[str]:
    """The reverse of `loads`, for results."""
    lines: list[str] = []
    for i, register in enumerate(registers):
        lines.append(f"add.u64 %at, %out, {8 * n * i}; add.u64 %at, %at, %wide;")
        if register.startswith("%q"):
            lines.append(f"selp.b32 %r159, 1, 0, {register}; st.global.b32 [%at], %r159;")
        else:
            lines.append(f"st.global.b{_BITS[register[1]]} [%at], {register};")
    return lines


def words(arrays: Sequence[Array]) -> Array:
    """Arrays of one element for each thread as eight-byte words, one array after the other."""
    return np.concatenate([array.astype(np.uint64) for array in arrays])


def vector(registers: Sequence[str]) -> str:
    """An operand of one or several registers."""
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def numbers(rng: np.random.Generator, kind: str, n: int) -> Array:
    """Bits of a type such as `s32`, `bf16` or `b1` packed in bytes: ordinary values, edges, and anything at all."""
    bits = {"bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8}.get(kind, int(kind[1:]) if kind[1:].isdigit() else 0)
    unsigned = np.dtype(f"u{max(bits, 8) // 8}")
    anything = rng.integers(0, 2 ** max(bits, 8) - 1, n, unsigned, endpoint=True)
    if kind in ("f16", "f32", "f64"):
        ordinary = rng.normal(size=n).astype(f"f{bits // 8}").view(unsigned)
    elif kind == "tf32":
        ordinary = rng.normal(size=n).astype(np.float32).view(unsigned)
    elif kind == "bf16":
        ordinary = (rng.normal(size=n).astype(np.float32).view(np.uint32) >> 16).astype(unsigned)
    elif kind in ("e4m3", "e5m2"):
        ordinary = rng.integers(0x28, 0x48, n, np.uint8) | rng.integers(0, 2, n, np.uint8) << 7
    else:
        ordinary = anything if bits < 16 else rng.integers(0, 4, n, unsigned)
    top = 1 << max(bits, 8) - 1
    edges = np.array([0, 1, top - 1, top, 2 * top - 1], unsigned)
    which = rng.random(n)
    return np.where(which < 0.4, ordinary, np.where(which < 0.5, rng.choice(edges, n), anything)).astype(unsigned)
