"""Import the modules that workers for KernelBench problems need, once in a zygote.

Shapes alone are computed by torch's decompositions, the first of which imports hundreds of modules; problems have a
module of their own, imported by whoever meets one.
"""

import importlib

for name in ("torch._dynamo", "kernel_lsp.runner.workers.triton_once", "kernel_lsp.workload.problem"):
    importlib.import_module(name)
