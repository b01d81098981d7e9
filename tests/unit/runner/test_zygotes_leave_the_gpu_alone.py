"""What a zygote imports asks torch nothing of the GPU: workers, which are its forks, could not use CUDA any more."""

import os
import subprocess
import sys

_PROGRAM = """
import importlib
import torch._dynamo  # before torch says that it was built with CUDA: it would look for functions that are not there

asked = []
def note(name):
    return lambda *_, **__: asked.append(name)

torch.cuda._is_compiled, torch.version.cuda = lambda: True, "13.0"
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_capability"):
    setattr(torch.cuda, name, note(name))

from kernel_lsp.runner import pool

roles = [f"kernel_lsp.runner.workers.{role}" for role in ("oracle", "subject", "published")]
libraries = ["torch.distributed.tensor", "torch._inductor", "torch.fx.experimental", "torch.utils.checkpoint"]
for module in (*pool._RECIPES[pool.Flavour.GPU].imports, *pool._FIRST.values(), *roles, *libraries):
    importlib.import_module(module)
from torch.utils import cpp_extension

assert cpp_extension.CUDA_HOME is not None
print(asked)
"""


def test_imports_of_gpu_workers_do_not_ask_whether_there_is_a_gpu() -> None:
    environment = os.environ | {"CUDA_HOME": "/usr/local/cuda"}  # an nvcc, as torch sees it
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"
