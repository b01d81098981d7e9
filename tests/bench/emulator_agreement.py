"""The emulator against the hardware: `python -m tests.bench.emulator_agreement --record`.

Every launch that the examples make on small cases is emulated, then made on the GPU with the same PTX (compiled by the
driver) from the same bytes in memory; tensor cores add as those of that GPU do. All memory that a launch can reach is
compared: bit by bit, and for floating-point tensors by the largest distance in units in the last place, which is how
many values of the tensor's type lie between, plus one. An example that cannot be replayed is listed with its reason.
Options: --mib LARGEST INPUTS of a case (default 1), --record.
"""

import argparse
from collections import Counter
from typing import Any

import numpy as np
import torch

from kernel_lsp.runner.workers.emulated_launch import read_program
from kernel_lsp.workload.workload import describe_case
from tests.bench.record import record
from tests.bench.replay import Gpu, Memory, Step, Subject, each_example, input_bytes

_SCRATCH = "scratch memory"  # where a kernel of Triton's makes its tensor maps, which are the driver's own on a GPU
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


def difference(emulated: Memory, real: Memory) -> dict[str, Any]:
    """How two contents of one storage differ: elements, those with other bits, the largest distance in ulp."""
    dtype = emulated.dtype
    usable = len(emulated.data) // dtype.itemsize * dtype.itemsize
    a, b = (memory.data[:usable].view(_integer(dtype)) for memory in (emulated, real))
    other = a != b
    found = {"name": emulated.name, "dtype": str(dtype).removeprefix("torch."), "elements": len(a)}
    found |= {"other_bits": int(other.sum()), "largest_ulp": 0}
    if dtype.is_floating_point and other.any():
        x, y = (torch.from_numpy(v[other].copy()).view(dtype) for v in (a, b))
        both_nan = torch.isnan(x) & torch.isnan(y)
        distance = np.abs(_ordered(a[other]) - _ordered(b[other]))
        found["largest_ulp"] = int(np.where(both_nan.numpy(), 0, distance).max())
    return found


def _integer(dtype: torch.dtype) -> Any:
    return _BITS.get(dtype.itemsize, np.uint8)


def _ordered(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floating-point bits as integers in the order of their values, so that neighbours differ by one."""
    wide = bits.astype(np.int64)
    least = -(1 << (8 * bits.itemsize - 1))
    return np.where(wide < 0, least - wide, wide)


def opcodes_of(step: Step) -> Counter[str]:
    """How often each PTX opcode stands in the kernel of a launch and what it calls."""
    functions = read_program(step.launch.ptx).functions.values()
    return Counter(i.opcode for f in functions if not f.entry or f.name == step.launch.entry for i in f.code)


def main() -> None:
    """Compare all examples and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=float, default=1.0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    gpu = Gpu()
    rows: list[dict[str, Any]] = []
    covered: Counter[str] = Counter()

    def compare(example: str, subject: Subject) -> None:
        cases = [(case, input_bytes(subject.inputs(case))) for case in range(len(subject.workload.cases))]
        smallest = min(cases, key=lambda case: case[1])[0]
        for case, nbytes in cases:
            if case != smallest and nbytes > options.mib * (1 << 20):
                continue
            for step in subject.steps(case):
                opcodes = opcodes_of(step)
                covered.update(opcodes)
                pairs = zip(step.after, gpu.repeat(step), strict=True)
                found = [difference(emulated, real) for emulated, real in pairs if emulated.name != _SCRATCH]
                rows.append(
                    {
                        "example": example,
                        "case": describe_case(subject.workload.cases[case]),
                        "kernel": step.launch.name,
                        "opcodes": len(opcodes),
                        "approximate": step.outcome.result.approximate,
                        "other_bits": sum(f["other_bits"] for f in found),
                        "elements": sum(f["elements"] for f in found),
                        "largest_ulp": max((f["largest_ulp"] for f in found), default=0),
                        "memory": found,
                        "emulated_s": round(step.outcome.seconds, 3),
                    }
                )
                row = rows[-1]
                print(
                    f"{row['example']:34s} {row['kernel']:28s} {row['case']:36s} {row['other_bits']:6d} of "
                    f"{row['elements']:8d} elements differ, {row['largest_ulp']:4d} ulp"
                    f"{'  (approximate units)' if row['approximate'] else ''}",
                    flush=True,
                )

    lacking = each_example(compare, gpu.arch)
    assert rows, "no example was replayed"
    exact = [row for row in rows if not row["approximate"]]
    figures = {
        "launches": len(rows),
        "launches_equal_in_every_bit": sum(not row["other_bits"] for row in rows),
        "launches_without_approximate_units": len(exact),
        "of_these_equal_in_every_bit": sum(not row["other_bits"] for row in exact),
        "largest_ulp": max(row["largest_ulp"] for row in rows),
        "not_replayed": lacking,
        "opcodes": dict(sorted(covered.items())),
        "rows": rows,
    }
    print({key: value for key, value in figures.items() if key not in ("rows", "opcodes")})
    if options.record:
        print(record("emulator_agreement", figures))


if __name__ == "__main__":
    main()
