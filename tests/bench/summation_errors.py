"""Errors of float32 sums by how they are summed.  `python -m tests.bench.summation_errors`.

Sums of 10 to a million terms, normal or their squares: one after another, in pairs, by Kahan's method, by 256 threads
of a block and a tree, block by block with the blocks' sums added in any order as atomics do; and beside these
what must not pass for rounding: terms rounded to TF32, partial sums kept in float16. In the judge's units of rounding,
and over the square root of the number of terms. Options: --sums (256) of each kind, --record. CPU only.
"""

import argparse
import math
from collections.abc import Callable

import torch
from torch import Tensor

from kernel_lsp.runner.workers.comparison import read, scale
from tests.bench.record import record

NAME = "summation_errors"
TERMS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
MANY_TERMS = (64, 1024)
THREADS = 256
_PART = 1 << 14  # terms of all sums that are held at once


def serial(parts: Tensor) -> Tensor:
    """Add rows one after another."""
    total = torch.zeros_like(parts[0])
    for row in parts:
        total += row
    return total


def pairwise(parts: Tensor) -> Tensor:
    """Add rows in pairs, then pairs of these."""
    while len(parts) > 1:
        half = len(parts) // 2
        added = parts[:half] + parts[half : 2 * half]
        parts = torch.cat([added, parts[2 * half :]])
    return parts[0]


def kahan(parts: Tensor) -> Tensor:
    """Add rows one after another, carrying along what each addition loses."""
    total, lost = torch.zeros_like(parts[0]), torch.zeros_like(parts[0])
    for row in parts:
        term = row - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total


def by_threads(parts: Tensor) -> Tensor:
    """Add every 256th row one after another, then the 256 sums in pairs."""
    whole = len(parts) // THREADS * THREADS
    sums = (
        serial(parts[:whole].view(-1, THREADS, parts.shape[1])) if whole else parts.new_zeros(THREADS, parts.shape[1])
    )
    sums[: len(parts) - whole] += parts[whole:]
    return pairwise(sums)


def by_blocks(parts: Tensor) -> Tensor:
    """Add 256 rows in pairs, and what comes out one after another in any order."""
    blocks = [pairwise(block) for block in parts.split(THREADS)]
    return serial(torch.stack(blocks)[torch.randperm(len(blocks))])


def in_half(parts: Tensor) -> Tensor:
    """Add rows one after another in float16."""
    return serial(parts.half()).float()


def of_tf32(parts: Tensor) -> Tensor:
    """Round terms to the 10 bits of TF32's mantissa and add them in pairs."""
    bits = parts.view(torch.int32)
    return pairwise(((bits + 0x1000) & ~0x1FFF).view(torch.float32))


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "serial": serial,
    "pairwise": pairwise,
    "kahan": kahan,
    "threads": by_threads,
    "blocks": by_blocks,
    "tf32": of_tf32,
    "half": in_half,
}


def errors(terms: int, sums: int, *, positive: bool) -> dict[str, dict[str, float]]:
    """Return the largest and the RMS error of each way, in units and over the root of the number of terms."""
    parts = torch.randn(terms, sums)
    parts = parts.square_() if positive else parts
    exact = torch.zeros(sums, dtype=torch.float64)
    for part in parts.split(_PART):
        exact += part.double().sum(0)
    found: dict[str, dict[str, float]] = {}
    for name, way in WAYS.items():
        reading = read(way(parts), exact, scale(exact, torch.float32), 0.0)
        largest, rms = reading.largest, (reading.squares / sums) ** 0.5
        if not math.isfinite(largest):  # beyond what float16 holds
            continue
        found[name] = {"max": largest, "rms": rms, "max_by_root": largest / terms**0.5, "rms_by_root": rms / terms**0.5}
    return found


def of_many_loops(terms: int, sums: int = 1 << 20) -> dict[str, float]:
    """Return the largest and the RMS error among very many sums of normal terms one after another, likewise."""
    total, exact = torch.zeros(sums), torch.zeros(sums, dtype=torch.float64)
    for _ in range(terms):
        row = torch.randn(sums)
        total += row
        exact += row
    reading = read(total, exact, scale(exact, torch.float32), 0.0)
    return {"max_by_root": reading.largest / terms**0.5, "rms_by_root": (reading.squares / sums / terms) ** 0.5}


def main() -> None:
    """Print a line for each number of terms and way, and record them when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sums", type=int, default=256)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    figures: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for kind in ("normal", "positive"):
        for terms in TERMS:
            figures.setdefault(kind, {})[str(terms)] = found = errors(terms, options.sums, positive=kind == "positive")
            for way, figure in found.items():
                shown = "".join(f" {name} {value:10.4g}" for name, value in figure.items())
                print(f"{kind:8} {terms:8} {way:8}{shown}", flush=True)
    many = {str(terms): of_many_loops(terms) for terms in MANY_TERMS}
    print("a million loops", many)
    if options.record:
        print(record(NAME, {"sums": options.sums, "units": figures, "million_loops": many}))


if __name__ == "__main__":
    main()
