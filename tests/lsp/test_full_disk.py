"""A disk without room: the work goes on, nothing that was found out is lost, and the user is told what to do."""

import contextlib
import resource
import subprocess
from pathlib import Path

import pytest

from kernel_lsp.store.store import open_store
from tests.lsp.job_session import below, data_of, editor
from tests.softmax_kernel import write_softmax

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
TWO = {"proposers": "scripted_proposers:two", "untimed": True}


@pytest.fixture
def kernel(tmp_path):
    return write_softmax(tmp_path)


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a disk of its own, of which hardly anything is left."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk can be mounted by root alone")
    (folder / "ballast").touch()
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """To the last page."""
    with (folder / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.thorough
async def test_a_full_cache_costs_time_and_nothing_else(kernel, tmp_path, full_disk):
    fill(full_disk)
    async with editor(tmp_path, environment=NO_GPU, refine=TWO, paths={"cache": str(full_disk)}) as session:
        job = await session.command("refine", session.open(kernel))
        ended = await session.ended(job["id"])
        assert ended["state"] == "done"
        assert ended["reason"].endswith("of 2 candidates 2 build and 1 are right")
    with open_store(data_of(tmp_path)) as store:
        assert len(store.list_verdicts()) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("known", [False, True])
async def test_what_a_full_disk_does_not_take_is_kept_in_the_session(kernel, tmp_path, full_disk, known):
    if known:
        open_store(full_disk).close()
    fill(full_disk)
    async with editor(tmp_path, environment=NO_GPU, refine=TWO, paths={"data": str(full_disk)}) as session:
        uri = session.open(kernel)
        job = await session.command("refine", uri)
        assert (await session.ended(job["id"]))["state"] == "done"
        told, *more = [said for said in session.said if "not being saved" in said]
        assert more == []
        assert str(full_disk) in told
        assert "`paths.data`" in told
        [show] = [a for a in await session.actions(uri, only=["refactor"]) if a.title.startswith("Show")]
        shown = await session.request("evidence", {"verdict": show.command.arguments[0]})
        assert ": UNTIMED" in shown["title"] or ": WRONG" in shown["title"]
        (full_disk / "ballast").unlink()  # room again: the next result takes the older ones along
        job = await session.command("rewrite", uri, "softmax_kernel", "streaming stores")
        await session.ended(job["id"])
        await session.until(lambda: len(stored(full_disk)) == 3, 10)


async def test_files_that_may_not_grow_are_no_reason_to_die(kernel, tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    async with editor(tmp_path, environment=NO_GPU, refine=TWO, real=True, before=limit) as session:
        job = await session.command("refine", session.open(kernel))
        ended = await session.ended(job["id"])
        assert ended["state"] in ("done", "failed")
        assert ended["reason"]
        assert "Traceback" not in ended["reason"]
        assert len(below(session.pid)) < 20


def stored(folder: Path) -> list:
    with open_store(folder) as store:
        return store.list_verdicts()
