"""Runs model servers on this machine: chooses what fits its GPUs, starts vLLM, watches it, and ends it.

It knows models, GPUs and processes, and nothing of kernels. Of `kernel_lsp` it uses `model`, what that stands on, and
for its commands what `cli` and `report` share. Nothing in `kernel_lsp` imports it: the command line finds `commands`
by its entry point.
"""

__version__ = "0.1.0"
