"""Makes arguments to compile a Triton or Gluon kernel with where nothing launches it. Worker processes only."""

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernel_lsp.compiler.triton.parameter_types import CompiledParameter

_ELEMENTS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "i1": torch.bool,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}


def gluon_argument(parameter: CompiledParameter, warps: int) -> Any:
    """Return a made-up value for a parameter of a Gluon kernel with blocks of so many warps."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia import hopper

    rank = parameter.value if isinstance(parameter.value, int) else 2
    outer, order = [1] * (rank - 1), list(reversed(range(rank)))
    if parameter.type == "layout":
        lanes = [32] if rank == 1 else [*outer[1:], 4, 8]
        return gl.BlockedLayout([*outer, 4], lanes, [warps, *outer], order)
    if parameter.type == "shared layout":
        return gl.SwizzledSharedLayout(1, 1, 1, order)
    if parameter.type == "desc":
        sides = [64] * rank
        layout: Any = gl.NVMMASharedLayout.get_default_for(sides, gl.float16)
        tensor = torch.empty(sides, dtype=torch.float16)
        return hopper.TensorDescriptor(tensor, sides, _strides(sides), sides, layout)
    return triton_argument(parameter, warps)


def triton_argument(parameter: CompiledParameter, _warps: int) -> Any:
    """Return a made-up value for a parameter."""
    value = parameter.value
    if parameter.type == "desc":
        sides = [64] * int(value or 2)
        return TensorDescriptor(torch.empty(sides, dtype=torch.float16), sides, _strides(sides), sides)
    if parameter.type == "tuple":
        return (1024,) * int(value or 1)
    if parameter.type.startswith("*"):
        return torch.empty(64, dtype=_ELEMENTS.get(parameter.type[1:], torch.float32))
    if parameter.type == "constexpr" and isinstance(value, str) and value.startswith("tl."):
        return getattr(tl, value.removeprefix("tl."), value)
    return value


def _strides(sides: list[int]) -> list[int]:
    return [64 ** (len(sides) - 1 - at) for at in range(len(sides))]
