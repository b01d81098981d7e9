"""Reads off a CUDA kernel that each thread has one element of every array, and what bounds the number of elements.

`int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];` tells that arrays have `n` elements, whatever
the parameter is called. Where nothing bounds `i`, there are as many elements as threads.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CAST = re.compile(r"\(\s*(?:const\s+)?(?:unsigned\s+)?(?:int|long(?:\s+long)?|size_t|u?int\d+_t|unsigned)\s*\)")
_THREAD = re.compile(
    r"(?:blockIdx\.x\*blockDim\.x|blockDim\.x\*blockIdx\.x)\+threadIdx\.x"
    r"|threadIdx\.x\+(?:blockIdx\.x\*blockDim\.x|blockDim\.x\*blockIdx\.x)"
)
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*([^=;][^;]*);")
_LOOP = re.compile(r"\bfor\s*\(\s*(?:[\w:]+\s+)*([A-Za-z_]\w*)\s*=\s*([^;]+);")
_OTHER_AXES = re.compile(r"\b(?:threadIdx|blockIdx)\s*\.\s*[yz]\b")


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """The number of elements: the parameter `extent`; an empty one where nothing bounds them.

    `fixed` is what bounds them where that is no parameter.
    """

    extent: str
    fixed: str = ""


def flat_index(arrays: Sequence[str], extents: Sequence[str], body: str) -> FlatIndex | None:
    """Return what bounds the elements of a kernel that has one for each thread; None for any other kernel.

    Args:
        arrays: names of the parameters that are arrays.
        extents: names of those that are whole numbers.
        body: the kernel's text after its first brace.
    """
    text = _CAST.sub("", body)
    if not arrays or _OTHER_AXES.search(text):
        return None
    indices = {name for name, value in (*_ASSIGNED.findall(text), *_LOOP.findall(text)) if _is_thread(value)}
    indices |= {name for name, value in _LOOP.findall(text) if value.strip() in indices}
    for array in arrays:
        used = re.findall(rf"(?<![\w.]){re.escape(array)}\b\s*(\[[^\[\]]*\])?", text)
        if not used or not all(at and (at[1:-1].strip() in indices or _is_thread(at[1:-1])) for at in used):
            return None
    bounds = {bound.strip() for index in indices for bound in _bounds(index, text)}
    if not bounds:
        return FlatIndex("") if not extents else None
    bound = bounds.pop()
    if bounds:
        return None
    return FlatIndex(bound) if bound in extents else FlatIndex("", bound)


def row_length(extents: Sequence[str], body: str) -> str:
    """Return that of two extents by which rows are counted, as in `y * width + x`; empty if both or neither are."""
    text = _CAST.sub("", body)
    found = [one for one in extents if re.search(rf"\*\s*{one}\b|(?<![\w.]){one}\s*\*", text)]
    return found[0] if len(extents) == 2 and len(found) == 1 else ""


def _is_thread(value: str) -> bool:
    return _THREAD.fullmatch(re.sub(r"[\s()]", "", value)) is not None


def _bounds(index: str, text: str) -> list[str]:
    """Return what an index is compared with: `n` for `i < n` and `i >= n`."""
    return re.findall(rf"(?<![\w.]){index}\s*(?:<(?![<=])|>=)\s*([^;&|)]+)", text)
