"""Loading workloads that are KernelBench problems. Worker processes only."""

from contextlib import AbstractContextManager, nullcontext

from kernel_lsp.source.modules import is_answer, is_problem


def extensions_left_out(text: str) -> AbstractContextManager[object]:
    """Within it a workload is loaded: where a problem's file holds an answer too, its extensions are the answer's.

    They are not built then, for the problem itself calls none of them.
    """
    if not (is_problem(text) and is_answer(text)):
        return nullcontext()
    from kernel_lsp.runner.workers.inline import recording  # imports compilers, which most workloads do without

    return recording()
