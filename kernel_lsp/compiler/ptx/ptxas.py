"""Parses the output of `ptxas -v`: the only source of spill counts, and the reference for our own cubin reader."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernel_lsp.compiler.machine_code.binary import KernelFacts

_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '?([\w$.]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class PtxasUsage:
    """Resources of one kernel as ptxas prints them: registers per thread, bytes per thread, shared bytes per block."""

    registers: int
    barriers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int


def parse_ptxas_usage(log: str) -> dict[str, PtxasUsage]:
    """Return entry symbol -> usage for each kernel in a log that holds the output of `ptxas -v`."""
    usage: dict[str, PtxasUsage] = {}
    frames: dict[str, tuple[int, int, int]] = {}  # of kernels and of functions that were not inlined
    entry = function = ""
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            function = found[1]
            if "Compiling" in line:
                entry = function
        elif found := _FRAME.search(line):
            frames[function] = (int(found[1]), int(found[2]), int(found[3]))
        elif found := _USED.search(line):
            shared = _SHARED.search(found[3])
            usage[entry] = PtxasUsage(
                int(found[1]),
                int(found[2] or 0),
                *frames.get(entry, (0, 0, 0)),
                int(shared[1]) if shared else 0,
            )
    return usage


def with_spills(facts: tuple[KernelFacts, ...], usage: Mapping[str, PtxasUsage]) -> tuple[KernelFacts, ...]:
    """Return `facts` with the spill bytes that ptxas counted; a kernel missing from `usage` keeps None."""
    return tuple(
        replace(fact, spill_store_bytes=said.spill_store_bytes, spill_load_bytes=said.spill_load_bytes)
        if (said := usage.get(fact.entry))
        else fact
        for fact in facts
    )
