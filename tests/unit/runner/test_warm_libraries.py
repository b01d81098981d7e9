"""Installed libraries that files import stay imported, for sessions of files that import the same ones alone."""

import asyncio
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_support import KERNEL_PATH, SECONDS
from test_warm_zygotes import Asked, parent_of, runtime, until

from kernel_lsp.runner import fork_server, libraries
from kernel_lsp.runner.fork_server_client import ForkServer
from kernel_lsp.runner.messages.subject import Load
from kernel_lsp.runner.pool import Flavour, Pool

__all__ = ["runtime"]  # a fixture

ROOT = Path(__file__).parents[3]
_INSTALLED_THERE = """
import sysconfig

elsewhere = sysconfig.get_path
sysconfig.get_path = lambda name, *more: {folder!r} if name == "purelib" else elsewhere(name, *more)
"""
_NOTES = """
import gc, os
with open({log!r}, "a") as log:
    print({name!r}, os.getpid(), gc.isenabled(), file=log)
"""
_HARM = {
    "starts_a_thread": "import threading as t, time\nt.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "ends": "import os\nos._exit(1)\n",
}


class Packages:
    """A folder of packages that servers take for installed; each notes in a log when it is imported, and by whom."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log = folder, folder / "log"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_INSTALLED_THERE.format(folder=str(folder)))
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{folder}"}
        self.base = ForkServer(("json",), self.environment, minutes=1)

    def write(self, name: str, text: str = "") -> None:
        """Write a package of one file."""
        (self.folder / f"{name}.py").write_text(_NOTES.format(log=str(self._log), name=name) + text)

    def imported(self) -> list[tuple[str, int]]:
        """Return the packages that were imported so far, in order, each with the process that did it."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(name, int(pid)) for name, pid, _ in map(str.split, lines)]

    def collecting(self) -> set[str]:
        """Return whether garbage was collected while they were imported."""
        return {line.split()[2] for line in self._log.read_text().splitlines()}

    def zygote_with(self, folder: Path, *names: str) -> Asked:
        """Return a zygote of the server with these packages."""
        return Asked(folder, self.base.importing(names, self.environment), self.environment)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path / "packages")


def test_libraries_are_imported_once_for_all_files_that_import_the_same(packages: Packages, tmp_path: Path) -> None:
    packages.write("one")
    packages.write("other")
    asked = [
        packages.zygote_with(tmp_path / str(number) / "emulate", *names)
        for number, names in enumerate((["one"], ["one"], ["other"], ["one", "other"]))
    ]
    servers = [parent_of(each.process.pid) for each in asked]
    assert packages.imported() == [
        ("one", servers[0]),
        ("other", servers[2]),
        ("one", servers[3]),
        ("other", servers[3]),
    ]
    assert servers[0] == servers[1]
    plain = Asked(tmp_path / "plain" / "emulate", packages.base, packages.environment)
    assert parent_of(plain.process.pid) not in servers
    assert packages.collecting() == {"False"}
    for each in (*asked, plain):
        each.end()


def test_what_is_not_installed_is_not_imported(packages: Packages, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    environment = packages.environment | {"PYTHONPATH": f"{packages.environment['PYTHONPATH']}:{project}"}
    server = ForkServer(("json",), environment, minutes=1).importing(("mine",), environment)
    asked = Asked(tmp_path / "a" / "emulate", server, environment)
    assert asked.process.pid
    assert not (tmp_path / "ran").exists()
    asked.end()


def test_a_changed_library_is_imported_anew(packages: Packages, tmp_path: Path) -> None:
    packages.write("one")
    before = packages.zygote_with(tmp_path / "a" / "emulate", "one")
    first = parent_of(before.process.pid)
    packages.write("one", "changed = True\n")
    after = packages.zygote_with(tmp_path / "b" / "emulate", "one")
    assert [pid for _, pid in packages.imported()] == [first, parent_of(after.process.pid)]
    assert not Path(f"/proc/{first}").exists()
    for each in (before, after):
        each.end()


@pytest.mark.parametrize("harm", _HARM)
def test_libraries_that_forks_cannot_use_have_no_server(packages: Packages, tmp_path: Path, harm: str) -> None:
    packages.write(harm, _HARM[harm])
    for name in ("a", "b"):
        assert packages.zygote_with(tmp_path / name / "emulate", harm).zygote is None
    assert len(packages.imported()) == 1  # it is not tried by each command
    plain = Asked(tmp_path / "c" / "emulate", packages.base, packages.environment)
    assert plain.process.pid
    plain.end()


def test_servers_with_libraries_are_few(packages: Packages, tmp_path: Path) -> None:
    names = [f"package_{number}" for number in range(fork_server._MOST_SERVERS + 1)]
    asked: list[Asked] = []
    for name in names:
        packages.write(name)
        asked.append(packages.zygote_with(tmp_path / name / "emulate", name))
    (_, oldest), *others = packages.imported()
    until(lambda: not Path(f"/proc/{oldest}").exists())
    assert all(Path(f"/proc/{pid}").exists() for _, pid in others)
    assert Path(f"/proc/{asked[0].process.pid}").exists()  # a session that has begun goes on
    held = [link.readlink() for link in Path(f"/proc/{parent_of(asked[-1].process.pid)}/fd").iterdir()]
    assert not any("pidfd" in str(target) for target in held)  # by which one could end another
    again = packages.zygote_with(tmp_path / "again" / "emulate", names[0])
    assert packages.imported()[-1] == (names[0], parent_of(again.process.pid))
    for each in (*asked, again):
        each.end()


@pytest.fixture
def installed(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """The packages, which this process takes for installed too."""
    elsewhere = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name: str(packages.folder) if name == "purelib" else elsewhere(name)
    )
    monkeypatch.setenv("PYTHONPATH", str(packages.folder))
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages.folder)])
    libraries._is_installed.cache_clear()
    yield packages
    libraries._is_installed.cache_clear()


def test_the_next_session_finds_libraries_imported(installed: Packages) -> None:
    installed.write("one")
    installed.write("other")
    asks = "import gc, sys\nseen = {'one', 'other'} & sys.modules.keys()\n"

    async def session(*names: str) -> None:
        async with Pool(warm_minutes=1) as pool:
            pool.foresee(["torch", *names])
            worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
            fits = f"if seen != {set(names)} or not gc.isenabled():\n    raise RuntimeError(seen)\n"
            await worker.ask(Load(path=KERNEL_PATH, text=f"{asks}{fits}def launch(): ..."), deadline=SECONDS)

    for names in (["one"], ["one"], [], ["other"]):
        asyncio.run(session(*names))
    assert [name for name, _ in installed.imported()] == ["one", "other"]


def test_what_builds_and_what_emulates_import_torch_once_on_a_machine_with_a_gpu() -> None:
    async def parents() -> set[int]:
        async with Pool("GPU-0") as pool:
            workers = [
                await pool.worker(Flavour.BUILD, "build"),
                await pool.worker(Flavour.EMULATE, "subject", device="cpu"),
            ]
            return {parent_of(worker.pid) for worker in workers}

    assert len(asyncio.run(parents())) == 1
