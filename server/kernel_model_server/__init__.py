"""Model servers on this machine: what fits its GPUs, starting vLLM, watching over it, ending it.

It knows models, GPUs and processes, and nothing of kernels. Of `kernel_lsp` it uses `model`, what that stands on, and
for its commands what `cli` and `report` share. Nothing in `kernel_lsp` imports it: the command line finds `commands`
by its entry point.
"""

__version__ = "0.1.0"
