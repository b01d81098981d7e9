"""Kernel LSP: faster CUDA and Triton kernels, each proved on the developer's own GPU.

Importing this package, or any module outside ``runner.workers``, never imports torch, triton, numpy or vllm.
"""

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """Add the cell magic `%%kernel_lsp` to IPython, which calls this for `%load_ext kernel_lsp`."""
    from kernel_lsp.cli import notebook  # nobody else needs it

    notebook.load(shell)  # pyright: ignore[reportArgumentType]
