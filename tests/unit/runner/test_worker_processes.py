"""Workers hang, die, print, spawn and pry; the parent always learns of it, and the next worker is none the worse."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_support import run_on_nothing

from kernel_lsp.errors import RunnerError, WorkloadError
from kernel_lsp.runner import environment as system_environment
from kernel_lsp.runner import pool as pool_module
from kernel_lsp.runner.messages.oracle import Probe
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut

SPAWN = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\nprint('child started', flush=True)\n"


def launch(*lines: str) -> str:
    """A kernel file whose `launch` does this."""
    return "import os, signal, subprocess, sys, time\nimport torch\ndef launch(module):\n" + "".join(
        f"    {line}\n" for line in (*lines, "return torch.zeros(1)")
    )


def living(group: int) -> list[int]:
    """Process ids of a process group, without what has ended and only waits to be noticed."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, _, pgrp = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
                if int(pgrp) == group and state != "Z":
                    found.append(int(entry.name))
    return found


def gone(group: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while living(group):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_worker_starts_and_answers(pool, run, subject):
    worker = run(subject(launch()))
    assert worker.pid in pool.pids()
    assert worker.scratch.is_dir()
    assert run(run_on_nothing(worker)).published.outputs[0].shape == (1,)


def test_an_error_of_the_users_comes_back_with_its_place_and_fix(run, subject):
    with pytest.raises(WorkloadError) as caught:
        run(subject("x = 1\n", path="/home/me/empty.py"))
    assert caught.value.path == Path("/home/me/empty.py")
    assert caught.value.message.startswith("there is no `launch`")
    assert caught.value.fix == "Define `launch(module, ...)` in the workload."
    with pytest.raises(WorkloadError) as caught:
        run(subject("\n\nimport nothing_of_that_name\n"))
    assert (caught.value.path, caught.value.line) == (Path("/home/me/kernel.py"), 3)


def test_an_error_of_the_code_under_judgement_leaves_its_worker_alive(run, subject):
    worker = run(
        subject(launch("if not os.path.exists('second'):", "    open('second', 'w'); raise ValueError('bad n')"))
    )
    with pytest.raises(WorkerFailure) as caught:
        run(run_on_nothing(worker))
    assert (caught.value.kind, caught.value.message) == ("ValueError", "bad n")
    assert 'File "/home/me/kernel.py", line 5, in launch' in caught.value.trace
    assert "raise ValueError('bad n')" in caught.value.trace
    assert worker.alive
    assert run(run_on_nothing(worker)).published.outputs[0].shape == (1,)


@pytest.mark.parametrize("hang", ["time.sleep(600)", "exec('while True: pass')", "signal.pause()"])
def test_a_worker_that_hangs_is_killed_with_its_children(pool, run, subject, hang):
    worker = run(subject(launch("subprocess.Popen(['sleep', '600'])", hang)))
    started = time.monotonic()
    with pytest.raises(WorkerTimedOut, match=r"the subject process did not finish `Run` in 0\.5 s"):
        run(run_on_nothing(worker, deadline=0.5))
    assert time.monotonic() - started < 3
    assert gone(worker.pid)
    assert not worker.scratch.exists()
    assert worker.pid in pool.pids(), "a GPU reports on a process for a while after its end"


def test_a_worker_that_ignores_signals_is_killed(run, subject):
    ignore = "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)"
    worker = run(subject(launch(ignore, "time.sleep(600)")))
    with pytest.raises(WorkerTimedOut):
        run(run_on_nothing(worker, deadline=0.5))
    assert gone(worker.pid)


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        "os._exit(3)",
        "sys.exit(0)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
        "os.closerange(3, 256)",
    ],
)
def test_a_worker_that_ends_is_reported_with_its_last_words_and_its_children_are_killed(run, subject, end):
    worker = run(subject(launch("subprocess.Popen(['sleep', '600'])", "print('about to end')", end)))
    with pytest.raises(WorkerDied, match="the subject process ended during `Run`; its last words: ") as caught:
        run(run_on_nothing(worker))
    if end.startswith("os._exit") or "kill" in end:
        assert caught.value.message.endswith("its last words: about to end")
    assert gone(worker.pid)
    assert not worker.scratch.exists()
    with pytest.raises(WorkerDied, match="the subject process is gone"):
        run(run_on_nothing(worker))


def test_a_worker_that_cannot_be_set_up_says_why(pool, run):
    async def start():
        worker = await pool.worker(Flavour.EMULATE, "oracle", no_such_parameter=1)
        await worker.ask(Probe(), deadline=30)

    with pytest.raises(WorkerDied, match="no_such_parameter"):
        run(start())


def test_a_worker_after_one_that_died_works(run, subject):
    dying = run(subject(launch("os._exit(1)")))
    with pytest.raises(WorkerDied):
        run(run_on_nothing(dying))
    assert run(run_on_nothing(run(subject(launch())))).published.outputs


def test_a_zygote_that_was_killed_is_replaced(pool, run):
    """As the system does where memory is short: it takes the largest process."""

    async def start_two():
        await pool.worker(Flavour.COMPILE, "compile")
        zygote = await pool._zygotes[Flavour.COMPILE]
        zygote.process.kill()
        await zygote.process.wait()
        second = await pool.worker(Flavour.COMPILE, "compile")
        third = await pool.worker(Flavour.COMPILE, "compile")
        return second, third, zygote

    second, third, zygote = run(start_two())
    assert pool._zygotes[Flavour.COMPILE].result() is not zygote
    assert all(Path(f"/proc/{worker.pid}").exists() for worker in (second, third))


def test_printing_without_end_disturbs_nothing(run, subject):
    worker = run(subject(launch("for _ in range(40): os.write(1, b'x' * 65536); os.write(2, b'\\xff' * 65536)")))
    assert run(run_on_nothing(worker)).published.outputs[0].shape == (1,)
    assert (worker.scratch / "output.log").stat().st_size > 5_000_000


def test_last_words_are_the_end_of_a_long_log(run, subject):
    flood = "for _ in range(40): os.write(1, b'flood\\n' * 10000)"
    worker = run(subject(launch(flood, "os.write(2, b'the \\xff end\\n')", "os._exit(1)")))
    with pytest.raises(WorkerDied, match=r"its last words: the \ufffd end$"):
        run(run_on_nothing(worker))


def test_last_words_are_what_was_raised_and_not_the_advice_below_it(run, subject):
    said = "RuntimeError: CUDA error: out of memory\\nFor debugging consider a variable\\nCompile with assertions\\n"
    worker = run(subject(launch(f"os.write(2, b'{said}')", "os._exit(1)")))
    with pytest.raises(WorkerDied, match=r"its last words: RuntimeError: CUDA error: out of memory$"):
        run(run_on_nothing(worker))


def test_reading_from_standard_input_finds_its_end(run, subject):
    worker = run(subject(launch("assert sys.stdin.read() == ''")))
    assert run(run_on_nothing(worker)).published.outputs


def test_cancelling_a_call_kills_its_worker(run, subject):
    worker = run(subject(launch("time.sleep(600)")))

    async def cancel() -> None:
        task = asyncio.create_task(run_on_nothing(worker))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert not worker.alive
    assert gone(worker.pid)


def test_cancelling_a_call_that_waits_for_its_turn_leaves_the_worker_alone(run, subject):
    worker = run(subject(launch("time.sleep(0.5)")))

    async def cancel() -> None:
        first = asyncio.create_task(run_on_nothing(worker))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(run_on_nothing(worker))
        await asyncio.sleep(0.1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await first).published.outputs

    run(cancel())
    assert worker.alive


def test_calls_at_once_take_turns(run, subject):
    lines = ("busy = os.path.exists('busy')", "open('busy', 'w').close()", "time.sleep(0.05)", "os.remove('busy')")
    worker = run(subject(launch(*lines, "assert not busy")))

    async def all_at_once():
        return await asyncio.gather(*(run_on_nothing(worker) for _ in range(5)))

    assert len(run(all_at_once())) == 5


def test_starting_many_workers_at_once_gives_each_its_own_process(pool, run, subject):
    async def start():
        workers = await asyncio.gather(*(subject(launch("raise ValueError(os.getpid())")) for _ in range(4)))
        answers = await asyncio.gather(*(run_on_nothing(worker) for worker in workers), return_exceptions=True)
        return [(worker.pid, int(answer.message)) for worker, answer in zip(workers, answers, strict=True)]

    pairs = run(start())
    assert all(told == actual for told, actual in pairs)
    assert len({actual for _, actual in pairs}) == 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize("after", [0.0, 0.001, 0.005, 0.02])
def test_a_start_that_is_cancelled_does_not_mix_up_the_next_workers(pool, run, subject, after):
    async def start():
        await subject(launch())
        task = asyncio.create_task(pool.worker(Flavour.EMULATE, "subject", device="cpu"))
        await asyncio.sleep(after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).kill()
        workers = [await subject(launch("raise ValueError(os.getpid())")) for _ in range(2)]
        answers = await asyncio.gather(*(run_on_nothing(worker) for worker in workers), return_exceptions=True)
        return [(worker.pid, int(answer.message)) for worker, answer in zip(workers, answers, strict=True)]

    assert all(told == actual for told, actual in run(start()))


def test_a_worker_sees_nothing_of_the_parents_environment_or_files(run, subject, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2")  # the zygote has started, but a worker could be told at any time
    dump = "import json; raise ValueError(json.dumps([dict(os.environ), os.getcwd(), os.listdir('/proc/self/fd')]))"
    worker = run(subject(launch(dump)))
    with pytest.raises(WorkerFailure) as caught:
        run(run_on_nothing(worker))
    environment, folder, _ = json.loads(caught.value.message)
    assert "hunter2" not in caught.value.message
    assert set(environment) <= {
        *system_environment._PASSED_ON,
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_DISABLE"),
        *("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS"),
    }
    assert environment["HOME"] == environment["TMPDIR"] == folder == str(worker.scratch)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "MY_API_KEY" in os.environ


SCRIPT = """
import asyncio, os, sys
os.environ["MY_API_KEY"] = "hunter2"
from kernel_lsp.runner.messages.subject import Bind, Load, Run
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure

TEXT = '''
import os, subprocess, pathlib
import torch
def launch(module):
    child = subprocess.Popen(["sleep", "600"])
    seen = pathlib.Path(f"/proc/{os.getppid()}/environ").read_text() + str(os.environ)
    raise ValueError(f"{os.getpid()} {os.getppid()} {child.pid} {'hunter2' in seen}")
'''

async def main():
    pool = Pool()
    worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
    await worker.ask(Load(path="/home/me/kernel.py", text=TEXT), deadline=60)
    await worker.ask(Bind(buffers=("nothing",), arguments=(), nbytes=1), deadline=60)
    try:
        await worker.ask(Run(buffer="nothing"), deadline=60)
    except WorkerFailure as error:
        print(error.message, pool.folder, flush=True)
    sys.stdin.readline()
    if sys.argv[1] == "close":
        await pool.close()
        print("closed", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", [pytest.param("close", marks=pytest.mark.thorough), "kill"])
def test_nothing_is_left_when_a_pool_is_closed_or_its_owner_killed(end):
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", SCRIPT, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        try:
            *pids, secret_seen, folder = parent.stdout.readline().split()
            assert len(pids) == 3
            assert all(running(int(pid)) for pid in pids)
            assert Path(folder).is_dir()
            if end == "close":
                parent.stdin.write("\n")
                parent.stdin.flush()
                assert parent.stdout.readline() == "closed\n"
        finally:
            parent.kill()
    deadline = time.monotonic() + 60
    while (any(running(int(pid)) for pid in pids) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if running(int(pid))] == []
    assert not Path(folder).exists()
    assert secret_seen == "False"


def test_a_pool_closed_while_it_starts_leaves_nothing():
    async def main() -> tuple[Path, int]:
        pool = Pool()
        pool.preload(Flavour.EMULATE)
        while not (children := _zygotes(pool.folder)):
            await asyncio.sleep(0.01)
        await pool.close()
        return pool.folder, children[0]

    folder, zygote = asyncio.run(main())
    assert not folder.exists()
    assert not running(zygote)


def test_nothing_is_started_by_a_pool_that_was_closed():
    async def main() -> None:
        pool = Pool()
        await pool.close()
        with pytest.raises(RunnerError, match="no process is started any more"):
            await pool.worker(Flavour.EMULATE, "subject")
        with pytest.raises(RunnerError, match="no process is started any more"):
            await pool.program([sys.executable, "-c", ""])
        assert not pool.folder.exists()

    asyncio.run(main())


def test_a_program_that_still_runs_ends_with_its_pool():
    async def main() -> None:
        pool = Pool()
        program = await pool.program(["sleep", "600"])
        ending = asyncio.create_task(program.end(deadline=600.0))
        await pool.close()
        assert gone(program.pid)
        status, _ = await ending
        assert status != 0

    asyncio.run(main())


_ASKS = """
import sys
print("in between")
print("ready 12", flush=True)
print("told", sys.stdin.readline(), flush=True)
"""


def test_a_program_waits_until_it_is_told_something():
    async def main() -> None:
        async with Pool() as pool:
            program = await pool.program([sys.executable, "-c", _ASKS])
            assert await program.says(b"ready ", deadline=60.0) == b"12"
            status, said = await program.end("all\n", deadline=60.0)
            assert (status, said.split()) == (0, ["in", "between", "ready", "12", "told", "all"])
            assert list(pool.scratch(Flavour.GPU).iterdir()) == []

    asyncio.run(main())


@pytest.mark.parametrize("program", ["print('no')", "input()"])
def test_a_program_that_says_nothing_of_the_kind_is_told_from_one_that_does(program: str):
    async def main() -> None:
        async with Pool() as pool:
            started = await pool.program([sys.executable, "-c", program])
            assert await started.says(b"ready", deadline=2.0) is None
            await started.kill()
            assert not pool._programs

    asyncio.run(main())


def _zygotes(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_libraries_that_are_missing_are_named_with_a_fix(monkeypatch):
    recipe = pool_module._Recipe(("a_library_nobody_has",))
    monkeypatch.setitem(pool_module._RECIPES, Flavour.EMULATE, recipe)

    async def main() -> None:
        async with Pool() as pool:
            await pool.worker(Flavour.EMULATE, "subject", device="cpu")

    with pytest.raises(RunnerError, match="No module named 'a_library_nobody_has'") as caught:
        asyncio.run(main())
    assert caught.value.fix == "Install what is missing with: pip install 'kernel-lsp[gpu]'."


def test_a_zygote_that_never_gets_ready_is_given_up(monkeypatch, tmp_path):
    (tmp_path / "endless_import.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool_module, "_START_SECONDS", 0.5)
    monkeypatch.setitem(pool_module._RECIPES, Flavour.EMULATE, pool_module._Recipe(("endless_import",)))

    async def main() -> Path:
        async with Pool() as pool:
            with pytest.raises(RunnerError, match="the emulate workers did not start"):
                await pool.worker(Flavour.EMULATE, "subject", device="cpu")
            return pool.folder

    folder = asyncio.run(asyncio.wait_for(main(), 20))
    assert _zygotes(folder) == []


def test_a_zygote_that_did_not_start_is_tried_again(monkeypatch):
    monkeypatch.setattr(pool_module, "_START_SECONDS", 0)

    async def main() -> None:
        async with Pool() as pool:
            with pytest.raises(RunnerError, match="did not start"):
                await pool.worker(Flavour.COMPILE, "compile")
            monkeypatch.undo()
            assert (await pool.worker(Flavour.COMPILE, "compile")).pid > 0

    asyncio.run(asyncio.wait_for(main(), 60))
