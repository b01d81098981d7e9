"""Trials on the GPU, through CUDA's driver interface."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from tests.bench.ptx_trials.trial import Array, Trial


def _check(result: tuple[Any, ...]) -> Any:
    if result[0] != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(cu.CUresult(result[0]).name)
    return result[1] if len(result) == 2 else result[1:]


class Gpu:
    """The first GPU, in its primary context."""

    def __init__(self) -> None:
        _check(cu.cuInit(0))
        _check(cu.cuCtxSetCurrent(_check(cu.cuDevicePrimaryCtxRetain(_check(cu.cuDeviceGet(0))))))

    def run(self, trial: Trial, begin: Callable[[str], None]) -> Array:
        """The bytes of `out` after the launch. `begin` is told each step before it is taken."""
        inputs, out = (np.ascontiguousarray(x).view(np.uint8) for x in (trial.inputs, trial.initial.copy()))
        begin("the driver compiled its PTX")
        linker = _check(cu.cuLinkCreate(0, [], []))
        text = trial.ptx.encode() + b"\0"
        _check(cu.cuLinkAddData(linker, cu.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"k.ptx", 0, [], []))
        cubin, _ = _check(cu.cuLinkComplete(linker))
        begin("its machine code was loaded")
        module = _check(cu.cuModuleLoadData(cubin))
        _check(cu.cuLinkDestroy(linker))
        pointers = [_check(cu.cuMemAlloc(x.nbytes)) for x in (inputs, out)]
        try:
            for pointer, host in zip(pointers, (inputs, out), strict=True):
                _check(cu.cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes))
            function = _check(cu.cuModuleGetFunction(module, b"k"))
            arguments = tuple(int(pointer) for pointer in pointers), (ctypes.c_uint64, ctypes.c_uint64)
            begin("it was launched")
            _check(cu.cuLaunchKernel(function, trial.blocks, 1, 1, trial.threads, 1, 1, 0, 0, arguments, 0))
            begin("it ran")
            _check(cu.cuCtxSynchronize())
            begin("what it wrote was read")
            _check(cu.cuMemcpyDtoH(out.ctypes.data, pointers[1], out.nbytes))
        finally:
            for pointer in pointers:
                _check(cu.cuMemFree(pointer))
            _check(cu.cuModuleUnload(module))
        return out
