"""Builds the `Binary` record, with the facts of each kernel, from a CUDA compiler's output."""

from collections.abc import Mapping

from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.machine_code.symbols import entry_names
from kernel_lsp.compiler.ptx.ptxas import parse_ptxas_usage, with_spills


def binary_from(arch: str, cubin: bytes, ptx: str | None, ptxas_log: str, asked: Mapping[str, str]) -> Binary:
    """Return a `Binary` whose kernels carry the user's names and the spill counts that ptxas printed.

    Args:
        arch: `sm_90` and the like.
        cubin: the machine code.
        ptx: what it was made from, if known.
        ptxas_log: a log that holds the output of `ptxas -v`.
        asked: names in launches -> symbols, as far as the compiler resolved them.

    Raises:
        CubinError: the cubin cannot be read.
    """
    entries = entry_names((fact.entry for fact in read_cubin(cubin)), asked)
    # Of several names the first, which is qualified, unless a launch uses another one.
    spoken = {symbol: name for name, symbol in (*reversed(entries.items()), *asked.items())}
    facts = with_spills(read_cubin(cubin, spoken), parse_ptxas_usage(ptxas_log))
    return Binary(arch, cubin, ptx, entries, facts)
