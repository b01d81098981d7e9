"""VS Code's commands: declared in package.json, registered in extension.ts, and known to the server if it does them."""

import json
import re
from pathlib import Path

from kernel_lsp.lsp.catalog import COMMANDS, JOBS, JobSubject

EXTENSION = Path(__file__).parents[3] / "extension"
CONTRIBUTED = json.loads((EXTENSION / "package.json").read_text())["contributes"]
DECLARED = {one["command"].removeprefix("kernelLsp.") for one in CONTRIBUTED["commands"]}
REGISTERED = set(re.findall(r'\bcommand\(\s*"(\w+)"', (EXTENSION / "src/extension.ts").read_text()))
SOURCES = "\n".join(path.read_text() for path in (EXTENSION / "src").glob("*.ts"))


def test_what_is_declared_is_registered_and_the_other_way_round() -> None:
    assert set() == DECLARED - REGISTERED, 'in package.json, without a `command("...")` in extension.ts'
    assert set() == REGISTERED - DECLARED, "in extension.ts, and not among the `commands` of package.json"


def test_menus_show_commands_that_there_are() -> None:
    shown = {row["command"] for rows in CONTRIBUTED["menus"].values() for row in rows if "command" in row}
    ours = {command.removeprefix("kernelLsp.") for command in shown if command.startswith("kernelLsp.")}
    assert ours - DECLARED == set()
    assert {"refine", "check"} <= ours


def test_the_server_knows_what_it_is_asked_to_do() -> None:
    asked = set(re.findall(r'\bserver\.(?:run|commands\.set)\(\s*"(\w+)"', SOURCES))
    assert {"refine", "apply", "evidence"} <= asked
    assert asked - {command.name for command in COMMANDS} == set(), "lsp/catalog.py declares no such command"


def test_every_job_on_a_file_or_a_kernel_is_in_the_palette() -> None:
    subjects = (JobSubject.KERNEL, JobSubject.FILE, JobSubject.KERNEL_FILE)
    offered = {kind.name for kind in JOBS.values() if kind.subject in subjects}
    assert offered - DECLARED == set(), "a job of lsp/catalog.py without a command in extension/package.json"
