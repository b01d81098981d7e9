"""The recorder hears of calls at their entry and return, by `sys.monitoring` or `sys.setprofile`."""

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

INJECTED = Path(__file__).parents[3] / "kernel_lsp/capture/inject"
PYTHONS = sorted({sys.executable, *filter(None, map(shutil.which, ("python3.12", "python3.13")))})
PROGRAM = f"""
import importlib.util, sys
sys.modules["torch"] = type(sys)("torch")

def part(name):
    spec = importlib.util.spec_from_file_location(f"_kernel_lsp_{{name}}", f"{INJECTED}/{{name}}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

seen, calls, _, recorder = map(part, ("seen", "calls", "launches", "recorder"))
finished = []
calls.finish = lambda call, value: finished.append((call.code.co_name, dict(call.values), value))
seen.STATE.files[__file__] = ""
recorder._watch_calls()

def rebinding(a, b=2):
    a = a + 1
    assert [call.code.co_name for call in seen.LOCAL.here.calls] == ["rebinding"]
    return a * b

def failing(x):
    raise ValueError

rebinding(1)
try:
    failing(3)
except ValueError:
    pass
assert finished[0] == ("rebinding", {{"a": 1, "b": 2}}, 4), finished
assert seen.LOCAL.here.calls == [] and seen.STATE.errors == [] and seen.STATE.on
"""


LATE = """
import atexit
atexit.register(recorder.at_end)

class Late:
    def __del__(self, failing=failing, error=ValueError):
        try:
            failing(3)
        except error:
            pass

import codecs  # which the interpreter clears after the recorder
codecs.late, codecs.recorder = Late(), recorder
"""


def run_with(python: str, path: Path, text: str) -> "subprocess.CompletedProcess[str]":
    path.write_text(text)
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} does not start")
    return subprocess.run([python, str(path)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("python", PYTHONS)
def test_arguments_are_those_at_entry_and_nothing_is_held_afterwards(python: str, tmp_path: Path):
    ran = run_with(python, tmp_path / "program.py", PROGRAM)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("python", PYTHONS)
def test_nothing_is_heard_and_nothing_said_when_the_interpreter_ends(python: str, tmp_path: Path):
    ran = run_with(python, tmp_path / "program.py", PROGRAM + LATE)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_time_that_a_description_takes_is_none_of_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen, calls = (injected(name, monkeypatch) for name in ("seen", "calls"))

    def describe(_: object) -> dict[str, object]:
        time.sleep(0.3)
        return {}

    calls._describe = SimpleNamespace(
        signature=repr, describe_arguments=describe, mutated=lambda *_: [], returned=lambda _: 1
    )
    seen.STATE.folder, seen.STATE.files = str(tmp_path), {"k.py": ""}
    place = SimpleNamespace(co_filename="k.py", co_name="f", co_firstlineno=1)
    call = calls.BegunCall(place, {"x": 1}, False)
    calls.begin(call)
    calls.finish(call, None)
    counts = seen.STATE.functions["k.py", "f"].counts()
    assert counts["calls"] == 1
    assert counts["seconds"] < 0.2


def injected(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is put into a captured program."""
    spec = importlib.util.spec_from_file_location(f"_kernel_lsp_{name}", INJECTED / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
