"""Run the Triton examples where there is no GPU, in a process of its own.

    python triton_without_gpu.py interpret EXAMPLE.py CASE...     each CASE a JSON object of arguments for `inputs`
    python triton_without_gpu.py compile EXAMPLE.py CAPABILITY... each CAPABILITY a number such as 90

`interpret` runs the launch on the CPU with Triton's interpreter and compares it with the reference in float64.
`compile` runs the launch of every case of the workload with a driver that compiles each kernel for the architecture and
launches nothing. Both print one line of JSON. They cannot share a process: Triton chooses when it is imported.
"""

import itertools
import json
import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

if __name__ == "__main__" and sys.argv[1] == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from kernel_lsp.runner.workers import comparison, error_bounds
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.families import NONFINITE, VALUE_FAMILIES, apply
from kernel_lsp.workload.load import load_workload, workload_of
from kernel_lsp.workload.workload import as_outputs, make_inputs

# Bytes of shared memory that one block may use: CUDA C++ Programming Guide, technical specifications per capability.
SHARED_MEMORY = {80: 166_912, 90: 232_448, 120: 101_376}


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


def load_example(path):
    """The workload and a function that launches the example: the workload's `launch` or the file's only function."""
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(multi_processor_count=132)
    module = load_module(path.read_text(encoding="utf-8"), path)
    sibling = path.with_name(f"{path.stem}_workload.py")
    if sibling.exists():
        workload = load_workload(sibling.read_text(encoding="utf-8"), sibling)
    else:
        workload = workload_of(module, path)
    return workload, partial(workload.launch, module) if workload.launch else getattr(module, path.stem)


def interpret(path, cases):
    """Check each case with every family of input values; return the number of launches."""
    triton.runtime.driver.set_active(CompileOnlyDriver(90))  # the autotuner asks it for a benchmarker
    workload, launch = load_example(path)
    checked = [family for family in (*VALUE_FAMILIES, NONFINITE) if family.finite or not workload.contract.finite]
    for case, family in itertools.product(cases, checked):
        torch.manual_seed(0)
        inputs = apply(family, make_inputs(workload, case), torch.Generator().manual_seed(0))
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        outputs = as_outputs(path, launch(*inputs), "launch")
        wide = (x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in before)
        for output, want in zip(outputs, as_outputs(path, workload.reference(*wide), "reference"), strict=True):
            size, bounds = comparison.scale(want, output.dtype), error_bounds.table_bounds(output.dtype)
            found = comparison.distance(output, want, size, bounds)
            if found.first_wrong is not None:
                raise AssertionError(f"wrong for {family.name} inputs of {case}: {found}")
        changed = tuple(
            name
            for name, x, old in zip(workload.argument_names, inputs, before, strict=True)
            if isinstance(x, torch.Tensor) and not comparison.same_bits(x, old)
        )
        if changed != workload.contract.mutates:
            raise AssertionError(f"the launch changed {changed}, the contract declares {workload.contract.mutates}")
    return len(cases) * len(checked)


def compile_for(path, capability):
    """Compile what each case launches; return the name of each kernel built, in order."""
    driver = CompileOnlyDriver(capability)
    triton.runtime.driver.set_active(driver)
    workload, launch = load_example(path)
    for case in workload.cases:
        launch(*make_inputs(workload, case))
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
