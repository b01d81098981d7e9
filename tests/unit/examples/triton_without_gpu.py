"""Run the Triton examples where there is no GPU, in a process of its own.

    python triton_without_gpu.py interpret EXAMPLE.py CASE...     each CASE a JSON object of arguments for `inputs`
    python triton_without_gpu.py compile EXAMPLE.py CAPABILITY... each CAPABILITY a number such as 90

`interpret` runs the launch on the CPU with Triton's interpreter and compares it with the reference in float64.
`compile` runs the launch of every case of the workload with a driver that compiles each kernel for the architecture and
launches nothing. Both print one line of JSON. They cannot share a process: Triton chooses when it is imported.
"""

import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__" and sys.argv[1] == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

# Bytes of shared memory that one block may use: CUDA C++ Programming Guide, technical specifications per capability.
SHARED_MEMORY = {80: 166_912, 90: 232_448, 120: 101_376}

# Rounding of the output plus that of intermediates in the same precision, as plain atol and rtol.
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


class InsteadOfCuda(TorchFunctionMode):
    """Tensors asked for on the GPU are made on another device."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = self.device
        return func(*args, **kwargs)


class CompileOnlyDriver(DriverBase):
    """Stands for a GPU of one compute capability: kernels are compiled and checked against its limits, never run."""

    def __init__(self, capability):
        self.capability = capability
        self.compiled = []
        self.utils = self
        self.launcher_cls = lambda source, metadata: lambda *launch: None

    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        def run_once(kernel_call, quantiles, **options):
            kernel_call()
            return [1.0 for _ in quantiles]

        return run_once

    def get_current_device(self):
        return self.capability

    def get_current_stream(self, device):
        return 0

    def get_device_properties(self, device):
        return {"max_shared_mem": SHARED_MEMORY[device]}

    def load_binary(self, name, cubin, shared, device):
        self.compiled.append(name)
        return 1, 1, 0, 0, 1024  # module, function, registers, spills, most threads


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_example(path):
    """The kernel module, its workload and the launch: the workload's own or the file's function of the same name."""
    module = load(path)
    sibling = path.with_name(f"{path.stem}_workload.py")
    workload = load(sibling) if sibling.exists() else module
    wrapper = getattr(module, path.stem)
    return module, workload, getattr(workload, "launch", lambda module, *inputs: wrapper(*inputs))


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def interpret(path, cases):
    """Check each case against the reference; return the largest absolute error of each."""
    triton.runtime.driver.set_active(CompileOnlyDriver(90))  # the autotuner asks it for a benchmarker
    module, workload, launch = load_example(path)
    mutates = getattr(workload, "CONTRACT", {}).get("mutates", ())
    errors = []
    for case in cases:
        torch.manual_seed(0)
        inputs = workload.inputs(**case)
        before = [x.clone() for x in inputs]
        outputs = as_tuple(launch(module, *inputs))
        expected = as_tuple(workload.reference(*(x.double() if x.is_floating_point() else x for x in before)))
        for output, want in zip(outputs, expected, strict=True):
            tolerance = TOLERANCES[output.dtype]
            torch.testing.assert_close(output.double(), want, atol=tolerance, rtol=tolerance)
        names = inspect.signature(workload.reference).parameters
        changed = tuple(n for n, x, old in zip(names, inputs, before, strict=True) if not torch.equal(x, old))
        if changed != mutates:
            raise AssertionError(f"the launch changed {changed}, the contract declares {mutates}")
        errors.append(max((output - want).abs().max().item() for output, want in zip(outputs, expected, strict=True)))
    return errors


def compile_for(path, capability):
    """Compile what each case launches; return the name of each kernel built, in order."""
    driver = CompileOnlyDriver(capability)
    triton.runtime.driver.set_active(driver)
    module, workload, launch = load_example(path)
    for case in workload.CASES:
        launch(module, *workload.inputs(**case))
    return driver.compiled


def main(mode, path, *rest):
    if mode == "interpret":
        with InsteadOfCuda("cpu"):
            result = interpret(Path(path), [json.loads(case) for case in rest])
    else:
        with InsteadOfCuda("meta"):  # no memory and no arithmetic: only shapes, strides and types decide what is built
            result = {capability: compile_for(Path(path), int(capability)) for capability in rest}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
