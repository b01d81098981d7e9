"""The emulator against the GPU: random PTX instructions on random and special operands, bit by bit.

    python -m tests.bench.ptx_fuzz --record                    on a machine with an sm_90 GPU
    python -m tests.bench.ptx_fuzz --assemble-only             anywhere: every generated instruction is legal

Every opcode comes at least once with all operands in registers, the others are drawn with constants among them; each
instance runs on 256 sets of operands. Every bit must agree, payloads of NaN included; approximate instructions are held
to the unit of sm_90.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.fuzz import kernels
from tests.bench.fuzz.comparing import Comparison, Example, compare
from tests.bench.fuzz.generators import GENERATORS
from tests.bench.fuzz.instance import LANES, Instance
from tests.bench.record import record

_INSTANCES = 12_000
_SHOWN = 3  # examples a group


@dataclass
class Tally:
    """What came of all instances of one group of opcodes."""

    opcodes: set[str] = field(default_factory=set)
    instances: int = 0
    different: int = 0
    examples: dict[str, Example] = field(default_factory=dict)

    def add(self, instance: Instance, found: Comparison) -> None:
        """Counts one instance."""
        self.opcodes.add(instance.opcode)
        self.instances += 1
        self.different += found.different
        if found.example is not None:
            self.examples.setdefault(instance.opcode, found.example)


def main() -> int:
    """Generates, assembles, runs, compares, prints."""
    arguments = _arguments()
    started = time.perf_counter()
    rng = np.random.default_rng(arguments.seed)
    instances = list(generate(rng, arguments.instances, arguments.only))
    print(f"{len(instances)} instances of {len({i.opcode for i in instances})} opcodes, seed {arguments.seed}")
    assembled = kernels.assemble(instances, find_ptxas(), arguments.arch, threads=os.cpu_count() or 1)
    print(f"{sum(len(k.instances) for k in assembled.kernels)} assembled for {arguments.arch} in {_since(started)}")
    for instance, message in assembled.refused:
        print(f"  refused: {' '.join(instance.text.split())}: {message}")
    if arguments.assemble_only:
        return 1 if assembled.refused else 0
    tallies, failures = measure(assembled)
    show(tallies, failures, arguments.examples)
    seconds = round(time.perf_counter() - started, 1)
    print(f"{seconds} s")
    if arguments.record:
        print(record("ptx_fuzz", figures(tallies, failures, assembled, arguments, seconds)))
    return 1 if failures or any(tally.different for tally in tallies.values()) else 0


def generate(rng: np.random.Generator, count: int, only: str = "") -> Iterator[Instance]:
    """Instances of all generators, or of those opcodes that start with `only`."""
    for function, share in GENERATORS.values():
        yield from (i for i in function(rng, round(count * share)) if i.opcode.startswith(only))


def find_ptxas() -> Path:
    """The assembler that comes with Triton."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


def measure(assembled: kernels.Assembled) -> tuple[dict[str, Tally], list[str]]:
    """Every kernel on the GPU and on the emulator: what differs by group, and what failed."""
    import torch

    from kernel_lsp.device.driver import CudaError

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    tallies: dict[str, Tally] = {}
    failures: list[str] = []
    for kernel in assembled.kernels:
        try:
            hardware = kernels.run(kernel)
        except (CudaError, RuntimeError) as problem:
            opcodes = sorted({instance.opcode for instance in kernel.instances})
            failures.append(f"{problem} in a kernel of {', '.join(opcodes)}")
            continue
        for instance, result in zip(kernel.instances, hardware, strict=True):
            found = compare(instance, result, instance.expected())
            tallies.setdefault(group(instance.opcode), Tally()).add(instance, found)
    return tallies, failures


def group(opcode: str) -> str:
    """Opcodes in one row of the table: the instruction and its types."""
    name, *parts = opcode.split(".")
    if name in ("setp", "set", "selp", "slct"):
        return f"{name}.{parts[-1]}"
    return ".".join([name, *(part for part in parts if any(c.isdigit() for c in part) or part == "pred")])


def show(tallies: dict[str, Tally], failures: list[str], examples: int = _SHOWN) -> None:
    """The table, what differs with so many examples a group, and the sum."""
    print(f"{'group':28}{'opcodes':>8}{'instances':>10}{'sets':>10}{'different':>10}")
    for name, tally in sorted(tallies.items()):
        print(f"{name:28}{len(tally.opcodes):8}{tally.instances:10}{tally.instances * LANES:10}{tally.different:10}")
    for name, tally in sorted(tallies.items()):
        if tally.different:
            print(f"{name}: {tally.different} different, in {len(tally.examples)} of {len(tally.opcodes)} opcodes")
        for example in list(tally.examples.values())[:examples]:
            print(f"  {example}")
    for failure in failures:
        print(f"failed: {failure}")
    whole = _sum(tallies)
    print(", ".join(f"{count} {what}" for what, count in whole.items()))


def _sum(tallies: dict[str, Tally]) -> dict[str, int]:
    every = list(tallies.values())
    instances = sum(tally.instances for tally in every)
    return {
        "opcodes": len(set().union(*(tally.opcodes for tally in every))),
        "instances": instances,
        "operand_sets": instances * LANES,
        "different": sum(tally.different for tally in every),
    }


def figures(
    tallies: dict[str, Tally],
    failures: list[str],
    assembled: kernels.Assembled,
    arguments: argparse.Namespace,
    seconds: float,
) -> dict[str, Any]:
    """What goes into the result file."""
    return {
        **_sum(tallies),
        "seed": arguments.seed,
        "arch": arguments.arch,
        "total_s": seconds,
        "refused": [f"{instance.opcode}: {message}" for instance, message in assembled.refused],
        "failed": failures,
        "groups": {
            name: {
                "opcodes": len(tally.opcodes),
                "instances": tally.instances,
                "different": tally.different,
                **({"examples": [str(x) for x in list(tally.examples.values())[:_SHOWN]]} if tally.examples else {}),
            }
            for name, tally in sorted(tallies.items())
        },
    }


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=_INSTANCES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arch", default="sm_90", help="what to assemble for")
    parser.add_argument("--only", default="", help="opcodes that start with this")
    parser.add_argument("--examples", type=int, default=_SHOWN, help="how many to print for each group that differs")
    parser.add_argument("--assemble-only", action="store_true", help="stop after the assembler; needs no GPU")
    parser.add_argument("--record", action="store_true", help="write results/ptx_fuzz.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
