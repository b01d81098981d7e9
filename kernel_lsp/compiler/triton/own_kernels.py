"""Checks that `launch` runs the Triton kernels of the file under judgement. Worker processes only."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.triton import find_triton_kernels
from kernel_lsp.workload.load import call_the_module, ignores_its_module


def require_own(launched: Iterable[Any], source: SourceFile, bound: Callable[..., Any]) -> None:
    """Refuse a `launch` that runs another copy of the kernels than the one it is given.

    Kernels of other files are allowed if the file under judgement calls them and none has the name of one of its own.

    Args:
        launched: the `JITFunction`s that were launched.
        source: the file.
        bound: what launched them, as `bind_launch` returned it; a function of the file itself runs what it likes.

    Raises:
        WorkloadError: a kernel of a name that the file defines was launched from elsewhere and not from the file, or
            none of the file was and `launch` does not even use its first parameter.
    """
    if not isinstance(bound, partial):
        return
    launch, module = bound.func, bound.args[0]
    functions = sorted((jit.fn for jit in launched), key=lambda function: function.__name__)
    own = {function.__name__ for function in functions if function.__globals__ is vars(module)}
    defined = {kernel.name for kernel in find_triton_kernels(source.text, source.path)}
    copies = [function.__code__ for function in functions if function.__name__ in defined - own]
    first = next(iter(inspect.signature(launch).parameters), "module")
    if copies:
        place = f"{copies[0].co_filename}, line {copies[0].co_firstlineno}"
        what = f"`launch` runs the kernel `{copies[0].co_name}` of {place}, not the one of {source.path.name}"
    elif not own and ignores_its_module(launch):
        what = f"`launch` does not use `{first}`, and runs no kernel of {source.path.name}"
    else:
        return
    code = getattr(launch, "__code__", None)
    at = (Path(code.co_filename), code.co_firstlineno) if code else (source.path, None)
    raise WorkloadError(what, *at, call_the_module(first))
