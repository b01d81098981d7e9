"""Model servers on this machine: what fits its GPUs, starting vLLM, watching over it, ending it.

It knows models, GPUs and processes, and nothing of kernels. Of `kernel_lsp` it uses `model` and what that stands on.
The command line and the search may use it; the judge does not, for what it needs is in `kernel_lsp.model.gate`.
"""
