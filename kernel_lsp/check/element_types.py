"""Tensors whose elements are not what the kernel's pointer declares: why an answer is wrong in all its elements."""

import re
from collections.abc import Iterator, Sequence

from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.source.kernel import Kernel

_SPECIFIER = re.compile(r"\b(?:const|volatile|restrict|__restrict__|__restrict|struct|typename|std::|::)\s*")
_FORMS = {
    "float": ("float32",),
    "double": ("float64",),
    "half": ("float16",),
    "__half": ("float16",),
    "__nv_bfloat16": ("bfloat16",),
    "nv_bfloat16": ("bfloat16",),
    **dict.fromkeys(("int", "signed int", "int32_t", "unsigned", "unsigned int", "uint32_t"), ("int32", "uint32")),
    **dict.fromkeys(
        ("long", "long long", "long long int", "int64_t", "size_t", "unsigned long long", "uint64_t"),
        ("int64", "uint64"),
    ),
}
"""Types of one number each, and the tensors that hold such; a pointer to any other type tells nothing."""


def unlike_elements(kernels: Sequence[Kernel], plans: Sequence[LaunchTrace]) -> Iterator[str]:
    """Yield, as the beginning of a sentence, each tensor that a launch passes for a pointer to numbers of another type.

    A kernel may mean it so, as one that copies bytes does: it is the reason for a wrong answer, and no error by itself.
    """
    declared = {kernel.name: kernel.parameters for kernel in kernels}
    told = dict.fromkeys(
        f"`{kernel}` gets a tensor of {given} for `{parameter.name}`, which it declares as `{parameter.type.strip()}`"
        for plan in plans
        for launch in plan.launches
        if (kernel := launch.kernel.partition("<")[0]) in declared
        for parameter, given in zip(declared[kernel], launch.tensors, strict=False)
        if given is not None and given not in (_held(parameter.type) or (given,))
    )
    yield from told


def _held(declared: str) -> tuple[str, ...] | None:
    """Return the element types of tensors that a pointer of this type reads; None where it does not tell."""
    if declared.count("*") != 1:
        return None
    return _FORMS.get(" ".join(_SPECIFIER.sub("", declared.replace("*", " ")).split()))
