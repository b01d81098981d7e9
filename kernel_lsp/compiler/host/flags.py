"""Sorts the options of nvcc and the host compiler by the compiler that takes them in the fast build."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.compiler.toolchain.target import split_targets

# Options that torch gives nvcc with every extension.
_TORCH = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
_BOTH = re.compile(r"-[DU].+")
_DEVICE = re.compile(
    r"-{1,2}(?:use_fast_math|ftz=|prec-div=|prec-sqrt=|fmad=|maxrregcount=|extra-device-vectorization|restrict|std=)\S*"
)
_NOTHING = re.compile(
    r"|-O\w*|-{1,2}(?:lineinfo|generate-line-info|expt-\S+|extended-lambda|extended_lambda|allow-unsupported-compiler"
    r"|threads=?\S*|ptxas-options=\S*|resource-usage|source-in-ptx|keep|verbose|diag-suppress\S*"
    r"|compiler-options=\S*|split-compile=\S*)"
    r"|-(?:W\w\S*|w|v|g|G|f(?:PIC|pic|openmp|fast-math|visibility\S*|permissive)|march=\S+|mtune=\S+|std=\S+|pthread|lcuda\w*|lc10\S*)"
)
_EXTENDED_LAMBDA = re.compile(r"-{1,2}(?:expt-)?extended[-_]lambda")
_WITH_VALUE = re.compile(
    r"-Xcompiler|-Xptxas|-Xcudafe|--threads|-t|--ptxas-options|--compiler-options|-diag-suppress|--diag-suppress"
)
_SPLIT = re.compile(r"-{1,2}(maxrregcount|std)")


@dataclass(frozen=True, slots=True)
class Flags:
    """Options of the fast build.

    Attributes:
        host: for the host compiler.
        device: for the device compilers, including those that name targets.
        unknown: the first option that the fast build does not know.
        extended_lambda: True if `__device__` lambdas are allowed.
    """

    host: tuple[str, ...]
    device: tuple[str, ...]
    unknown: str | None = None
    extended_lambda: bool = False


def translate(
    cflags: Sequence[str], cuda_cflags: Sequence[str], ldflags: Sequence[str] = (), *, torch: bool = True
) -> Flags:
    """Return the options of an extension split for the host compiler and NVRTC.

    Definitions in `cuda_cflags` go to both, as nvcc would pass them to both. Levels of optimisation and warnings do not
    change a result and are dropped. `torch` adds the definitions that torch gives nvcc.
    """
    host: list[str] = []
    device: list[str] = list(_TORCH if torch else ())
    for flag in cflags:
        if _BOTH.fullmatch(flag):
            host.append(flag)
        elif not _NOTHING.fullmatch(flag):
            return Flags((), (), flag)
    others, targets = split_targets(cuda_cflags)
    device += targets
    rest = list(others)
    while rest:
        flag = rest.pop(0)
        if _BOTH.fullmatch(flag):
            host.append(flag)
            device.append(flag)
        elif _SPLIT.fullmatch(flag) and rest:
            device.append(f"--{flag.lstrip('-')}={rest.pop(0)}")
        elif _DEVICE.fullmatch(flag):
            device.append(flag if flag.startswith("--") else f"-{flag}")
        elif _WITH_VALUE.fullmatch(flag) and rest:
            rest.pop(0)
        elif not _NOTHING.fullmatch(flag):
            return Flags((), (), flag)
    unknown = next((flag for flag in ldflags if not _NOTHING.fullmatch(flag)), None)
    return Flags(tuple(host), tuple(device), unknown, any(map(_EXTENDED_LAMBDA.fullmatch, cuda_cflags)))
