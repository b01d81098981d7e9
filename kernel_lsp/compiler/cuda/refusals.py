"""Joins what ptxas says of instructions that the GPU it compiles for lacks: it repeats itself for each qualifier."""

import re
from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp.compiler.builds.build import Diagnostic

BLACKWELL = "sm_100a"
"""The target that has `tcgen05`, Blackwell's tensor cores and their memory."""
_REFUSED = re.compile(r"(Instruction|Feature) '([^']+)' not supported on \.target '(\w+)'")
_REASON = f"exists on {BLACKWELL} and its family alone (such as the B200)"


def joined_refusals(found: Sequence[Diagnostic], path: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics without what ptxas says of an instruction's qualifiers where it refuses the instruction.

    Of the instructions of `tcgen05` the first line in the file at `path`, else anywhere, gets one error that says where
    they exist and what to do; the others are left out.
    """
    refused = {one: said for one in found if (said := _REFUSED.match(one.message))}
    instructions = [one for one, said in refused.items() if said[1] == "Instruction"]
    places = {(one.path, one.line) for one in instructions}
    of_blackwell = [one for one in instructions if refused[one][2].startswith("tcgen05.")]
    first = min(of_blackwell, key=lambda one: (one.path != path, one.line), default=None)
    kept: list[Diagnostic] = []
    for one in found:
        if one is first:
            kept.append(replace(one, message=_explained(refused[one])))
        elif one not in of_blackwell and (one in instructions or one not in refused or _place(one) not in places):
            kept.append(one)
    return tuple(kept)


def needs_blackwell(found: Sequence[Diagnostic]) -> bool:
    """Return True if a build's diagnostics, as `joined_refusals` leaves them, refuse an instruction of `tcgen05`."""
    return any(_REASON in one.message for one in found)


def _explained(said: re.Match[str]) -> str:
    return (
        f"`{said[2]}` {_REASON}, and this is compiled for '{said[3]}', where it cannot run: "
        f'`arch = ["{BLACKWELL}"]` in the settings, or `facts --arch {BLACKWELL}`, shows what the compiler makes of it'
    )


def _place(one: Diagnostic) -> tuple[str, int]:
    return one.path, one.line
