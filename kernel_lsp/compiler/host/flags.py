"""Options for nvcc and the host compiler, told apart by who can do something with them on the fast path."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.compiler.target import split_targets

# What torch gives nvcc with every extension.
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
    """Options of the fast path.

    Attributes:
        host: for the host compiler.
        device: for the device compilers, with what names targets.
        unknown: the first one whose meaning there is not known.
        extended_lambda: whether lambdas in device code may say so.
    """

    host: tuple[str, ...]
    device: tuple[str, ...]
    unknown: str | None = None
    extended_lambda: bool = False


def translate(
    cflags: Sequence[str], cuda_cflags: Sequence[str], ldflags: Sequence[str] = (), *, torch: bool = True
) -> Flags:
    """Options of an extension for the host compiler and for NVRTC.

    Definitions of `cuda_cflags` go to both, as nvcc would give them to both. Levels of optimisation and warnings
    change nothing that a result depends on, and go. With `torch` come the definitions that torch gives nvcc.
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
