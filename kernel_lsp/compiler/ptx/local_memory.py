"""Tells from PTX whose local memory a kernel uses: the stack that ptxas reports may be a library function's alone.

`sin` and its like reduce large arguments through a small array, and `printf` hands its arguments over in one. No change
of the kernel's own arrays or loops would take these away.
"""

import re
from itertools import pairwise

_ENTRY = re.compile(r"^\.?(?:\w+ )?\.entry\s+([\w$.]+)", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)?\.(?:entry|func)\b", re.MULTILINE)
_ARRAY = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# The digits of 2/pi, as a table or unrolled: only the reduction of a large argument reads these.
_REDUCTION = re.compile(r"__cudart_i2opi|\b1011060801\b")
_REDUCTION_BYTES = 28  # of `__internal_trig_reduction_slowpath` in single precision, where it is inlined
_CALL = re.compile(r"\bcall(?:\.uni)?\b[^;]*?\b([A-Za-z_$][\w$]*)\s*[,;(]")
_OF_LIBRARY = re.compile(r"__internal_|__nv_|__cuda_sm")
_PRINT, _PRINT_BYTES = re.compile(r"\bvprintf\b"), 64  # of up to eight arguments


def entries_with_own_stack(ptx: str, least: int) -> frozenset[str]:
    """Return the symbols of the kernels whose local memory may be their own code's.

    Args:
        ptx: the PTX of one build.
        least: bytes of arrays below which a kernel has none to speak of.
    """
    starts = [match.start() for match in _FUNCTION.finditer(ptx)]
    parts = [ptx[at:end] for at, end in pairwise((*starts, len(ptx)))]
    return frozenset(entry[1] for part in parts if (entry := _ENTRY.match(part)) and _is_own(part, least))


def _is_own(body: str, least: int) -> bool:
    size = sum(map(int, _ARRAY.findall(body)))
    if _REDUCTION.search(body):
        size -= _REDUCTION_BYTES
    if _PRINT.search(body):
        size -= min(size, _PRINT_BYTES)
    called = [name for name in _CALL.findall(body) if not name.startswith(("retval", "param"))]
    own_call = any(not _OF_LIBRARY.match(name) and not _PRINT.fullmatch(name) for name in called)
    return size >= least or own_call
