"""What recording costs a program: `python -m tests.bench.capture_overhead`.

A program launches one small Triton kernel many times, and does steps of training of about 5 ms. It runs plain, with the
hooks for Triton's launches alone, and with GPU times through CUPTI as well, in turn; medians over the rounds. Figures:
microseconds a launch beyond the plain program's, for launches of a kernel that takes 2 us, one after another; and the
part of a step by which it is longer. Options: --launches N (default 20000), --steps N (default 200), --rounds N
(default 7), --record.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from kernel_lsp.capture.device_level import device_level
from kernel_lsp.capture.program_record import read_seen
from kernel_lsp.capture.run import recording
from tests.bench.record import record

GOAL_US, GOAL_PERCENT = 10.0, 3.0
_STEP_SECONDS = 5e-3
_OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)


def scale(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
_PROGRAM = """import json
import sys
import time
import torch
from ops import scale

launches, steps, units = map(int, sys.argv[1:])
torch.manual_seed(0)
small = torch.randn(4096, device="cuda")
weight = torch.nn.Parameter(torch.randn(2048, 2048, device="cuda"))
x = torch.randn(2048, 2048, device="cuda")
optimizer = torch.optim.SGD([weight], lr=1e-3)


def seconds(work, times):
    for _ in range(max(times // 10, 5)):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def step(units=units):
    for _ in range(units):
        y = x @ weight
        scale(y.detach())
        y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


if not units:
    units = max(1, round(STEP / seconds(lambda: step(1), 50)))
said = {"launch": seconds(lambda: scale(small), launches), "step": seconds(lambda: step(units), steps), "units": units}
print(json.dumps(said))
""".replace("STEP", str(_STEP_SECONDS))
_KINDS = ("plain", "hooks", "times")


def measure(launches: int, steps: int, rounds: int) -> dict[str, float]:
    """Return the figures: of each kind the time of a launch and of a step, and what it adds to the plain one's."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "ops.py").write_text(_OPS)
        (folder / "train.py").write_text(_PROGRAM)
        level = device_level(os.environ, folder / "cache")
        if not level.environment:
            raise SystemExit(f"GPU times cannot be recorded: {level.why or 'there is no driver'}")
        records = {kind: folder / kind for kind in _KINDS}
        for path in records.values():
            path.mkdir()
        hooks = recording(os.environ, records["hooks"])
        times = {**recording(os.environ, records["times"]), **level.environment}
        environments: dict[str, Mapping[str, str]] = {"plain": os.environ, "hooks": hooks, "times": times}
        units = int(_run(folder, os.environ, launches, steps, 0)["units"])
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}
        for number in range(rounds):
            for kind in _KINDS if number % 2 == 0 else reversed(_KINDS):
                found[kind].append(_run(folder, environments[kind], launches, steps, units))
        seen = read_seen(records["times"])
        if not seen.on_device.kernels:
            raise SystemExit(f"nothing was timed: {seen.on_device.why}")
    figures: dict[str, float] = {"units": units, "rounds": rounds}
    for kind in _KINDS:
        figures[f"{kind}_launch_us"] = 1e6 * median(one["launch"] for one in found[kind])
        figures[f"{kind}_step_ms"] = 1e3 * median(one["step"] for one in found[kind])
    for kind in _KINDS[1:]:
        figures[f"{kind}_us_a_launch"] = figures[f"{kind}_launch_us"] - figures["plain_launch_us"]
        figures[f"{kind}_percent_of_a_step"] = 100 * (figures[f"{kind}_step_ms"] / figures["plain_step_ms"] - 1)
    return figures


def _run(folder: Path, environment: Mapping[str, str], launches: int, steps: int, units: int) -> dict[str, float]:
    command = [sys.executable, "train.py", str(launches), str(steps), str(units)]
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"the program ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=20000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    figures = measure(options.launches, options.steps, options.rounds)
    print(json.dumps(figures, indent=2))
    if options.record:
        record("capture_overhead", figures)


if __name__ == "__main__":
    main()
