"""A watched folder: what a save makes be checked again, and what it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from check_support import HEADER, KERNEL, WORKLOAD, write_scale

from kernel_lsp.check import watching as watching_module
from kernel_lsp.check.record import FileReport
from kernel_lsp.check.watching import QUIET_SECONDS, FolderStatus, watch_folder
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language

LONG = 20.0


class Recording:
    """Stands in for `Checker`: remembers what it was asked, and reads the files that `scale.cu` reads."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, str]] = []
        self.reads: dict[Path, frozenset[Path]] = {}
        self.gate: asyncio.Event | None = None
        self.cancelled = 0
        self.error: Exception | None = None
        self._folder = folder.resolve()

    async def check(self, source: SourceFile) -> FileReport:
        self.asked.append((source.path.name, source.text))
        names = ("factor.cuh", "scale_workload.py") if source.path.name == "scale.cu" else ()
        self.reads[source.path] = frozenset({source.path.resolve(), *(self._folder / name for name in names)})
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return FileReport(source.path, Language.CUDA, "sm_90", ("scale",))


def watching(
    folder: Path, steps: Callable[[Recording, list[FolderStatus], "Until"], Awaitable[None]]
) -> list[FolderStatus]:
    """Run `steps` while `folder` is watched; all that was shown."""

    async def run() -> list[FolderStatus]:
        checker, shown = Recording(folder), list[FolderStatus]()
        task = asyncio.create_task(watch_folder(folder, checker, shown.append))
        try:
            async with asyncio.timeout(LONG):
                await steps(checker, shown, until)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return shown

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    return asyncio.run(run())


Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def settle() -> None:
    """Long enough for a burst to end."""
    await asyncio.sleep(4 * QUIET_SECONDS)


def test_a_kernel_its_workload_and_its_header_concern_it(tmp_path):
    path = write_scale(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.cu").write_text(KERNEL)

    async def steps(checker, shown, until):
        await until(lambda: len(checker.asked) == 2 and not shown[-1].checking)
        assert set(shown[-1].reports) == {path, tmp_path / "deep" / "other.cu"}
        for number, (name, text) in enumerate(
            [("scale.cu", KERNEL + "\n"), ("scale_workload.py", WORKLOAD), ("factor.cuh", HEADER)], start=3
        ):
            (tmp_path / name).write_text(text)
            await until(lambda number=number: len(checker.asked) == number)
            await settle()
            assert len(checker.asked) == number, "once for each save"
            assert checker.asked[-1][0] == "scale.cu"
        (tmp_path / "notes.txt").write_text("")
        (tmp_path / ".hidden.cu").write_text(KERNEL)
        await settle()
        assert len(checker.asked) == 5

    watching(tmp_path, steps)


def test_a_burst_of_saves_is_one_change(tmp_path, monkeypatch):
    monkeypatch.setattr(watching_module, "QUIET_SECONDS", 1.0)  # a busy machine may stand still for a while
    path = write_scale(tmp_path)

    async def steps(checker, shown, until):
        await until(lambda: len(checker.asked) == 1 and not shown[-1].checking)
        for number in range(8):
            path.write_text(f"// {number}\n{KERNEL}")
            await asyncio.sleep(0.05)
        await until(lambda: len(checker.asked) > 1)
        await asyncio.sleep(1.5)
        assert [text.splitlines()[0] for _, text in checker.asked[1:]] == ["// 7"]

    watching(tmp_path, steps)


def test_a_check_of_what_has_changed_meanwhile_is_begun_anew(tmp_path):
    path = write_scale(tmp_path)

    async def steps(checker, shown, until):
        checker.gate = asyncio.Event()
        await until(lambda: len(checker.asked) == 1)
        await settle()
        path.write_text(f"// new\n{KERNEL}")
        await until(lambda: len(checker.asked) == 2)
        assert checker.cancelled == 1
        assert shown[-1].checking == {path}
        checker.gate.set()
        await until(lambda: not shown[-1].checking)
        assert len(shown[-1].reports) == 1
        assert len(checker.asked) == 2

    watching(tmp_path, steps)


def test_files_that_come_go_and_are_half_written(tmp_path):
    path = write_scale(tmp_path)

    async def steps(checker, shown, until):
        await until(lambda: len(checker.asked) == 1 and not shown[-1].checking)
        path.write_bytes(KERNEL.encode() + b"// \xc3")
        await settle()
        assert len(checker.asked) == 1
        assert path in shown[-1].reports, "what is half written keeps its report"
        path.write_text(KERNEL)
        await until(lambda: len(checker.asked) == 2 and not shown[-1].checking)
        (tmp_path / "new.cu").write_text(KERNEL)
        await until(lambda: tmp_path / "new.cu" in shown[-1].reports)
        (tmp_path / "new.cu").rename(tmp_path / "renamed.cu")
        await until(lambda: set(shown[-1].reports) == {path, tmp_path / "renamed.cu"})
        (tmp_path / "renamed.cu").unlink()
        await until(lambda: set(shown[-1].reports) == {path})
        path.write_text("int no_kernel_any_more;\n")
        await until(lambda: not shown[-1].reports)

    watching(tmp_path, steps)


def test_a_file_that_lies_elsewhere_is_followed(tmp_path):
    folder = tmp_path / "kernels"
    path = write_scale(folder)
    elsewhere = tmp_path / "include" / "shared.cuh"
    elsewhere.parent.mkdir()
    elsewhere.write_text("")

    async def steps(checker, shown, until):
        await until(lambda: len(checker.asked) == 1 and not shown[-1].checking)
        checker.reads[path] |= {elsewhere.resolve()}
        path.write_text(KERNEL + "// again\n")

        async def check(source: SourceFile, ask=checker.check) -> FileReport:
            report = await ask(source)
            checker.reads[path] |= {elsewhere.resolve()}
            return report

        checker.check = check
        await until(lambda: len(checker.asked) == 2 and not shown[-1].checking)
        elsewhere.write_text("#define X\n")
        await until(lambda: len(checker.asked) == 3)

    watching(folder, steps)


def test_a_baseline_that_cannot_be_read_is_shown_and_watching_goes_on(tmp_path):
    path = write_scale(tmp_path)

    async def steps(checker, shown, until):
        checker.error = ConfigurationError("the baseline cannot be used")
        await until(lambda: bool(shown) and shown[-1].problem is not None)
        assert "cannot be used" in shown[-1].problem
        checker.error = None
        (tmp_path / ".kernel-lsp").mkdir()
        path.write_text(KERNEL)
        await until(lambda: path in shown[-1].reports)
        assert shown[-1].problem is None
        before = len(checker.asked)
        (tmp_path / ".kernel-lsp" / "baseline.json").write_text("{}")
        await until(lambda: len(checker.asked) == before + 1)

    watching(tmp_path, steps)
