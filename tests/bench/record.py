"""Write the result of a benchmark program as `results/NAME.json`; README.md beside this file has the schema."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
COMMIT_VARIABLE = "BENCH_COMMIT"
RESULTS_VARIABLE = "BENCH_RESULTS"


def record(
    name: str,
    figures: Mapping[str, Any],
    *,
    device: str | None = None,
    driver: str | None = None,
    commit: str | None = None,
    directory: Path | None = None,
) -> Path:
    """Write one result file and return its path; what is not given is found out.

    Args:
        name: of the result, also the file's name without `.json`.
        figures: JSON values; names carry their unit (`false_faster_share`, `median_ms`). NaN and infinity are refused.
        device: what was measured on, by default the GPUs that `nvidia-smi` names, or the CPU where there are none.
        driver: version of the GPU driver, by default the one `nvidia-smi` names, "none" where there is none.
        commit: of the measured source, by default `$BENCH_COMMIT` or else what git says.
        directory: by default `$BENCH_RESULTS` or else `tests/bench/results`.
    """
    gpus, found_driver = gpus_and_driver()
    entry = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device or gpus or f"CPU {platform.machine()}, {os.cpu_count()} cores",
        "driver": driver or found_driver or "none",
        "commit": commit or os.environ.get(COMMIT_VARIABLE) or commit_from_git(),
        "command": command(),
        "figures": dict(figures),
    }
    text = json.dumps(entry, indent=2, allow_nan=False) + "\n"
    directory = directory or Path(os.environ.get(RESULTS_VARIABLE, RESULTS))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(text)
    return path


def gpus_and_driver() -> tuple[str, str]:
    """The names of the GPUs, each with its count, and the driver's version; empty where there are none."""
    lines = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    rows = [line.split(", ") for line in lines]
    names = [row[0] for row in rows]
    listed = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return listed, rows[0][1] if rows else ""


def commit_from_git() -> str:
    """The commit checked out here, with `-dirty` when tracked files differ from it, or "unknown"."""
    return next(iter(_output("git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")), "unknown")


def command() -> str:
    """The command line of this program as one would type it in the root of the repository."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = ["-m", spec.name] if spec is not None else [sys.argv[0]]
    return shlex.join(["python", *program, *sys.argv[1:]])


def _output(*arguments: str) -> list[str]:
    """Lines a command prints, none when it is missing or fails."""
    try:
        done = subprocess.run(arguments, cwd=RESULTS.parent, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
