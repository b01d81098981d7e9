"""Calls of a captured program's functions: their arguments, and what is recorded of those that launch kernels.

It holds no tensor past the call that it came in.
"""

import importlib.util
import os
import sys
import time

import _kernel_lsp_seen as seen

MOST_SIGNATURES = 64
_describe = None  # the module beside this one, loaded with torch


class BegunCall:
    """A call of a watched function that has not returned."""

    __slots__ = ("began", "case", "code", "forms", "kernels", "known", "late", "record", "values", "versions")

    def __init__(self, code, values, late):
        self.code, self.values, self.late = code, values, late
        self.record, self.case, self.kernels, self.forms = None, None, [], None
        function = seen.STATE.known.get(id(code))
        # What a call of the same signature is recorded in. Most calls of a program have one, and are not looked at.
        self.known = None if function is None else function.signatures.get(self.signature())
        self.versions = _versions(values) if self.known is None else {}
        self.began = time.perf_counter()

    def signature(self):
        """Return the forms of its arguments."""
        if self.forms is None:
            form = described().signature
            self.forms = tuple([form(value) for value in self.values.values()])  # quicker than a generator
        return self.forms


def _versions(values):
    """Return the versions of the tensors among these by name; those of inference have none."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    return {
        name: value._version for name, value in values.items() if isinstance(value, tensor) and not value.is_inference()
    }


def described():
    """Return the module that describes values, which needs torch."""
    global _describe
    if _describe is None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "describe.py")
        spec = importlib.util.spec_from_file_location("_kernel_lsp_describe", path)
        _describe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_describe)
    return _describe


def _function_of(code):
    """Return what is recorded of a code's function."""
    function = seen.STATE.functions.setdefault((code.co_filename, code.co_name), seen.SeenFunction(code))
    seen.STATE.known[id(code)] = function
    return function


def begin(call):
    """Record a call that launches, if it is not; describe its arguments if its signature is new."""
    call.record = call.record or call.known
    if call.record is not None:
        return
    function = seen.STATE.known.get(id(call.code)) or _function_of(call.code)
    signatures = function.signatures
    call.record = signatures.get(call.signature())  # a call of this signature may have launched since this one began
    if call.record is not None:
        return
    if len(signatures) >= MOST_SIGNATURES:
        call.record = function.others
        return
    call.record = signatures[call.signature()] = seen.Signature(function, len(signatures))
    if not in_a_graph():
        before = time.perf_counter()
        call.case = described().describe_arguments(call.values)
        call.began += time.perf_counter() - before  # which is no time of the program's


def in_a_graph():
    """Return True while a CUDA graph records, whose launches happen later."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda is not None and cuda.is_available() and cuda.is_current_stream_capturing()
    except Exception:
        return False


def finish(call, returned):
    """Count a call that has returned; write the case that it is the first of."""
    if call.record is None:
        return
    call.record.count += 1
    call.record.seconds += time.perf_counter() - call.began
    if call.case is None:
        return
    describe, function = described(), call.record.function
    seen.line(
        dict(
            kind="case", file=function.file, function=function.name, number=call.record.number,
            text=seen.STATE.files[function.file], arguments=call.case, kernels=call.kernels, late=call.late,
            mutated=describe.mutated(call.case, call.values, call.versions), returned=describe.returned(returned),
        )
    )  # fmt: skip
    seen.write_counts()
