"""The command `kernel-lsp bench kernelbench` for tests, without a GPU and in a folder of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.forked_commands import forked
from tests.host_header import with_host_header

TESTS = Path(__file__).parents[2]
PROBLEMS = TESTS / "fixtures/kernelbench"
CANDIDATES = TESTS / "kernelbench/candidates"
START = "from kernel_lsp.cli.main import main; main()"


class Bench:
    """The command, in a folder of its own."""

    def __init__(self, folder: Path, source: str = "--candidates", **settings: str) -> None:
        self.folder, self.source, self.settings = folder, source, settings
        (folder / "candidates").mkdir()

    def take(self, *names: str) -> None:
        with_host_header(self.folder / "cache/builds")
        for level, number, sample in (name.split(".") for name in names):
            name = f"level_{level}_problem_{number}_sample_{sample}_kernel.py"
            shutil.copy(CANDIDATES / name, self.folder / "candidates" / name)

    def start(self, *args: str, real: bool = True) -> subprocess.Popen[str]:
        """A process group of its own; only the `real` command ends at once when that is killed."""
        folders = {f"KERNEL_LSP_PATHS_{name}": str(self.folder / name.lower()) for name in ("DATA", "CACHE")}
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            **folders,
            **self.settings,
        }
        given = [
            "--root",
            str(PROBLEMS),
            self.source,
            "candidates",
            "--ledger",
            "ledger.jsonl",
            "--json",
            "out.json",
        ]
        start = [sys.executable, "-c", START] if real else forked()
        return subprocess.Popen(
            [*start, "bench", "kernelbench", *given, "--json", "out.json", *args],
            env=environment | {"COLUMNS": "160"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str) -> tuple[int, str, dict[str, dict]]:
        """Exit code, what was printed, and results by `level.problem.sample`."""
        process = self.start(*args, real=False)
        said, complaints = process.communicate(timeout=800)
        assert process.returncode in (0, 3), complaints
        results = json.loads((self.folder / "out.json").read_text())["results"]
        by_name = {f"{r['level']}.{r['number']}.{r['index']}": r for r in results}
        return process.returncode, re.sub(" +", " ", said + complaints), by_name

    def lines(self) -> list[str]:
        file = self.folder / "ledger.jsonl"
        return file.read_text().splitlines() if file.exists() else []
