"""Advice on names and parameters of earlier versions of Triton, by what the installed one says of them.

Worker processes only. Works with Triton 3.6 and 3.7.
"""

import ast
import re

from triton.language.extra import libdevice

_NO_ATTRIBUTE = re.compile(r"module 'triton\.language(?:\.math)?' has no attribute '(\w+)'")
_TRANSPOSED = re.compile(r"\bdot\(\) got an unexpected keyword argument 'trans_[ab]'")
_DESCRIPTORS = {
    "_experimental_make_tensor_descriptor": "tl.make_tensor_descriptor(...)",
    "_experimental_descriptor_load": "descriptor.load([...])",
    "_experimental_descriptor_store": "descriptor.store([...], value)",
}


def advice_on_keywords(function: ast.FunctionDef) -> str:
    """Return what to write for a kernel's `**meta`, which Triton 1 filled with constants; empty if it has none."""
    if function.args.kwarg is None:
        return ""
    name = function.args.kwarg.arg
    return f"Triton 3 passes no `**{name}`: declare each of its constants, as `BLOCK: tl.constexpr`"


def advice_on(message: str) -> str:
    """Return what to write today for what a compiler's message does not know, as a sentence; empty if it is not old."""
    if _TRANSPOSED.search(message):
        return "`tl.dot` transposes nothing any more: write `tl.dot(a, tl.trans(b))`."
    missing = _NO_ATTRIBUTE.search(message)
    if missing is None:
        return ""
    name = missing[1]
    if name in _DESCRIPTORS:
        return f"It is `{_DESCRIPTORS[name]}` now."
    if name != "libdevice" and not hasattr(libdevice, name):
        return ""
    called = "FUNCTION" if name == "libdevice" else name
    return (
        "Triton 3 has it elsewhere: write `from triton.language.extra import libdevice` "
        f"and call `libdevice.{called}(...)`."
    )
