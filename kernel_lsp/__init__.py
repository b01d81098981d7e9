"""Kernel LSP: faster CUDA and Triton kernels, each proved on the developer's own GPU.

Importing this package, or any module outside ``runner.workers``, never imports torch, triton, numpy or vllm.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kernel-lsp")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+source"
