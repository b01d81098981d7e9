"""Chooses the compilation target for an architecture: `sm_90`, or `sm_90a` with architecture-specific instructions.

Instructions that exist only in an architecture-specific target (`wgmma`, `setmaxnreg`, `tcgen05`) run on that one
architecture, so compilers leave them out unless told otherwise. Kernels here are built for one GPU and may use them.
"""

import re
from collections.abc import Iterable, Sequence

from kernel_lsp.source.outline import without_comments

_NAMED = re.compile(r"\b(?:sm|compute)_(\d+)([af])\b")
_OPTION = re.compile(r"-{1,2}(?:gencode|generate-code|gpu-architecture|gpu-code|arch|code)(?:=.*)?")
_ASKS = re.compile(
    r"\b(?:wgmma|setmaxnreg|tcgen05)|\bcp\.async\.bulk\.tensor\b|__CUDA_ARCH_(?:FEAT_SM\d+_ALL|(?:FAMILY_)?SPECIFIC__)"
)
"""Such instructions, and macros by which code tests whether it may use them."""
_REFUSED = re.compile(r"^ptxas .*\berror\b.*(?:not supported on \.target|requires \.target)", re.MULTILINE)
_OF_HOPPER = re.compile(
    r"\b(?:wgmma|setmaxnreg|tcgen05|cp\.async\.bulk|cp\.reduce\.async\.bulk|barrier\.cluster|mapa|mbarrier\.try_wait)\."
)
_FIRST = 90  # architectures before it have one target


def split_targets(flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return nvcc's options split in two: those that name no target, and those that do (`-arch=sm_90a`)."""
    others: list[str] = []
    targets: list[str] = []
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if not _OPTION.fullmatch(flag):
            others.append(flag)
        elif "=" in flag or not rest:
            targets.append(flag)
        else:
            targets.append(f"{flag}={rest.pop(0)}")
    return tuple(others), tuple(targets)


def target_of(arch: str, texts: Iterable[str], options: Sequence[str] = ()) -> str:
    """Return the target to compile for.

    Args:
        arch: the GPU's architecture (`sm_90`), or a target set by the user (`sm_90a`), which is kept.
        texts: the code.
        options: those that name targets, see `split_targets`.

    Returns:
        `arch` with the suffix that the options give to this very architecture, or that the code asks for.
    """
    if not _may_be_specific(arch):
        return arch
    number = arch.removeprefix("sm_")
    for option in options:
        for named, suffix in _NAMED.findall(option):
            if named == number:
                return arch + suffix
    return arch + "a" if any(_asks(text) for text in texts) else arch


def wider_target(target: str, log: str) -> str | None:
    """Return the next target to try if ptxas said that an instruction is not in this one; None if there is none."""
    return target + "a" if _may_be_specific(target) and _REFUSED.search(log) else None


def is_modern(ptx: str | None) -> bool:
    """Return True if code has instructions that came with Hopper (sm_90) or later, so that it says what it needs.

    For an older architecture the same text may compile to something else, or to nothing if it tests `__CUDA_ARCH__`.
    """
    return ptx is not None and _OF_HOPPER.search(ptx) is not None


def _asks(text: str) -> bool:
    return _ASKS.search(text) is not None and _ASKS.search(without_comments(text.encode()).decode()) is not None


def _may_be_specific(arch: str) -> bool:
    number = arch.removeprefix("sm_")
    return number.isdecimal() and int(number) >= _FIRST
