"""Runs model servers on this machine: chooses what fits its GPUs, starts vLLM, watches it, and ends it.

It knows models, GPUs and processes, and nothing of kernels. Of `kernel_lsp` it uses `model` and the rooms below. The
command line and the search may use it; the judge does not, since `kernel_lsp.model.gate` has all it needs.
"""
