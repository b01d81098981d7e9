"""Kernel LSP: faster CUDA and Triton kernels, each proved on the developer's own GPU.

Importing this package, or any module outside ``runner.workers``, never imports torch, triton, numpy or vllm.
"""

__version__ = "0.1.0"
