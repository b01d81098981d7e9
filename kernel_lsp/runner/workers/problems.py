"""Load workloads that are KernelBench problems. Worker processes only."""

from contextlib import AbstractContextManager, nullcontext

from kernel_lsp.source.modules import is_answer, is_problem


def extensions_left_out(text: str) -> AbstractContextManager[object]:
    """Return the context for loading a workload: extensions of an answer in the same file are not built in it.

    The problem itself calls none of them.
    """
    if not (is_problem(text) and is_answer(text)):
        return nullcontext()
    from kernel_lsp.runner.workers.inline import recording  # imports compilers, which most workloads do without

    return recording()
