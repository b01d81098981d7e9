"""A workspace to drive VS Code in: kernels, verified variants with believable figures, and no GPU."""

import math
import random
import shutil
from pathlib import Path

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.store.store import open_store
from tests.editors.editor_folder import make_folder
from tests.lsp.job_session import ROOT, data_of, store_offer
from tests.unit.report.sample_verdicts import case, resources

SETTINGS = """[tool.kernel-lsp]
refine.untimed = true
refine.budget = "60s"
refine.proposers = ["scripted_proposers:unhurried"]
"""
_SIZES = {"rows=2048 cols=8192": 41.2, "rows=1024 cols=1024": 9.1, "rows=1823 cols=781": 12.4}


def make_workspace(folder: Path) -> dict[str, str]:
    """Fill `folder`, which nobody trusts yet; the environment to start VS Code with."""
    folder.mkdir(exist_ok=True)
    environment = make_folder(folder)
    (folder / ".home/config/kernel-lsp/trusted.json").unlink()
    (folder / "pyproject.toml").write_text(SETTINGS)
    kernel = folder / "softmax.py"
    for warps, speedup in ((8, 1.082), (2, 1.247)):
        text = kernel.read_text().replace("num_warps=4", f"num_warps={warps}")
        verdict = store_offer(folder, kernel, text, **_figures(f"num_warps 4 -> {warps}", speedup, warps))
        _elaborate(folder, verdict, warps)
    for name in ("transpose.cu", "transpose_workload.py"):
        shutil.copy(ROOT / "examples/cuda" / name, folder)
    return environment


def _elaborate(folder: Path, verdict: Verdict, warps: int) -> None:
    """The same with the kernel's own resources, and as the end of a search."""
    name = "softmax_kernel[BLOCK=8192]"
    before = resources(name=name, registers=80, shared_bytes=32, threads=128, occupancy=0.375, limiter="registers")
    after = resources(
        name=name, registers=144, shared_bytes=32, threads=32 * warps, occupancy=0.1875, limiter="registers"
    )
    evidence = {"baseline_resources": (before,), "candidate_resources": (after,)}
    whole = verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update=evidence)})
    with open_store(data_of(folder)) as store:
        store.save_verdict(whole.model_dump(mode="json"))
        for number in range(6):
            store.append_turn(f"search-{warps}", f"{number}" * 64)
        store.append_turn(f"search-{warps}", verdict.evidence.candidate_digest, verdict=verdict.id)


def _figures(label: str, speedup: float, warps: int) -> dict[str, object]:
    chance = random.Random(warps)
    cases = []
    for name, us in _SIZES.items():
        gain = speedup * chance.uniform(0.97, 1.03)
        blocks = tuple(round(-math.log(chance.gauss(gain, 0.008)), 5) for _ in range(26))
        share = 0.93 / speedup * chance.uniform(0.9, 1.0)
        figures = {
            "baseline_us": us,
            "candidate_us": us / gain,
            "speedup": gain,
            "interval": (gain - chance.uniform(0.004, 0.012), gain + chance.uniform(0.004, 0.012)),
            "baseline_roofline_share": share,
            "roofline_share": share * gain,
            "blocks": blocks,
        }
        cases.append(case(name, **figures))
    return {
        "label": label,
        "cases": tuple(cases),
        "speedup": speedup,
        "interval": (speedup - 0.011, speedup + 0.012),
        "reason": f"Faster in all {len(cases)} timed cases, and every check passed.",
    }
