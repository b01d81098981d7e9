"""Drafts calls of CuTe DSL: the function under `@cute.jit` is called with tensors passed by DLPack."""

import re

from kernel_lsp.languages.cute.source import find_entries
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, Parameter
from kernel_lsp.workload.language import Argument, Drafted, DraftedCall, WorkloadPart, value_of

_OUTPUT = re.compile(r"(?i)^m?_?(out\w*|y\w*|dst\w*|res\w*|o|c|d|z|ret\w*)$")


class _Cute:
    def draft(self, source: SourceFile, kernel: Kernel) -> Drafted:
        entries = find_entries(source.text, source.path)
        text = source.text.encode()
        body = re.compile(rf"\b{kernel.name}\b".encode())
        entry = next((one for one in entries if body.search(text, one.body.start, one.body.end)), kernel)

        def launch(plan: DraftedCall) -> list[str]:
            given = [f"from_dlpack({a.name})" if a.is_tensor else a.name for a in plan.arguments]
            return ["from cutlass.cute.runtime import from_dlpack", f"module.{entry.name}({', '.join(given)})"]

        return Drafted([_argument(parameter) for parameter in entry.parameters], launch)


def _argument(parameter: Parameter) -> Argument:
    if not parameter.type or "Tensor" in parameter.type:
        return Argument(parameter.name, "output" if _OUTPUT.match(parameter.name) else "input")
    if "Float" in parameter.type:
        return Argument(parameter.name, "number", value=value_of(parameter.name))
    return Argument(parameter.name, "extent")


PART: WorkloadPart = _Cute()
