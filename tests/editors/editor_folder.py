"""A folder to drive an editor in: two kernels, a variant found earlier, and a `kernel-lsp` on the path."""

import os
import sys
from pathlib import Path

from kernel_lsp.lsp.trust import Trust
from tests.lsp.job_session import ROOT, store_offer
from tests.private_home import private_home
from tests.softmax_kernel import write_softmax

HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples/editors"
BROKEN = "__global__ void broken(float* y)\n{\n    y[0] = two;\n}\n"
SETTINGS = """[tool.kernel-lsp]
refine.untimed = true
refine.proposers = ["scripted_proposers:endless"]
"""
RUN = """#!{python}
from kernel_lsp.cli.main import main
main()
"""


def make_folder(folder: Path) -> dict[str, str]:
    """Fill `folder`; the environment to start an editor with."""
    kernel = write_softmax(folder)
    store_offer(folder, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    (folder / "broken.cu").write_text(BROKEN)
    (folder / "pyproject.toml").write_text(SETTINGS)
    Trust(folder / ".home/config/kernel-lsp/trusted.json").add(folder)
    commands = folder / ".home/bin"
    commands.mkdir()
    (commands / "kernel-lsp").write_text(RUN.format(python=sys.executable))
    (commands / "kernel-lsp").chmod(0o755)
    return {
        "PATH": os.pathsep.join((str(commands), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests/fixtures"))),
        "HOME": str(folder / ".home"),
        **private_home(folder / ".home"),
        "CUDA_VISIBLE_DEVICES": "",
    }
