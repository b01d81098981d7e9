"""The real commands of `kernel-lsp`, for trainings: settings come from the environment, and no GPU is seen."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MAIN = "from kernel_lsp.cli.main import main; main()"


def call(*words: object) -> list[str]:
    """The arguments of a process that runs a command."""
    return [sys.executable, "-c", _MAIN, *map(str, words)]


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """What such a process sees; settings have names as in `LEARN_RANK`."""
    given = os.environ | {f"KERNEL_LSP_{name}": str(value) for name, value in settings.items()}
    return given | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
