"""Helix in a terminal, with the set-up that the README gives: a person's keys, and what is then on the screen."""

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editors.editor_folder import EXAMPLES, HERE, make_folder

HELIX = HERE / "helix/.cache/usr"
LIBRARIES = HELIX / "lib/x86_64-linux-gnu"
PROGRESS = "[editor.lsp]\ndisplay-progress-messages = true\n"
KERNEL = ("/", "softmax_k", "Enter")  # a search, which leaves the cursor at the kernel
ACTIONS = ("Space", "a")
OFFER = "Apply num_warps 4 -> 2: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200"
SECONDS = 60  # until what is waited for is on the screen


class Terminal:
    """A terminal of 140 by 45 characters in which Helix has a file open."""

    def __init__(self, folder: Path, file: str):
        self._environment = os.environ | make_folder(folder) | {"HELIX_RUNTIME": str(HELIX / "lib/hx/runtime")}
        self._socket = str(folder / ".home/tmux")
        settings = Path(self._environment["XDG_CONFIG_HOME"]) / "helix"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(PROGRESS)
        shutil.copy(EXAMPLES / "helix.toml", settings / "languages.toml")
        helix = f"{LIBRARIES}/ld-linux-x86-64.so.2 --library-path {LIBRARIES} {HELIX}/bin/hx {file}"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "45", "-c", str(folder), helix)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        """Press keys, or type texts, one after another."""
        self._tmux("send-keys", *keys)

    def waits_for(self, pattern: str) -> str:
        """Return the screen as soon as it has what the pattern says."""
        late = time.monotonic() + SECONDS
        while not re.search(pattern, screen := self._tmux("capture-pane", "-p")):
            assert time.monotonic() < late, f"{pattern} is not on the screen:\n{screen}"
            time.sleep(0.2)
        return screen

    def asks_for(self, pattern: str, *keys: str) -> str:
        """Press keys until the screen has what the pattern says: the server may need a while."""
        late = time.monotonic() + SECONDS
        while True:
            self.press("Escape")
            time.sleep(0.2)  # with what follows at once it would be another key
            self.press(*keys)
            for _ in range(10):
                screen = self._tmux("capture-pane", "-p")
                if re.search(pattern, screen):
                    return screen
                time.sleep(0.2)
            assert time.monotonic() < late, f"{pattern} is not on the screen:\n{screen}"

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def opened(tmp_path) -> Iterator[list[Terminal]]:
    """A list for the test's terminal, which is closed at its end."""
    if not (HELIX / "bin/hx").exists() or platform.machine() != "x86_64":
        pytest.skip("Helix is not installed: tests/editors/helix/install")
    if shutil.which("tmux") is None:
        pytest.skip("tmux, in which Helix is driven, is not installed")
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def test_a_compile_error_is_at_its_line(opened, tmp_path):
    opened.append(terminal := Terminal(tmp_path, "broken.cu"))
    assert re.search(r"●\s+3 +y\[0\] = two;", terminal.waits_for("● 1"))
    terminal.press("Space", "d")
    terminal.waits_for('identifier "two" is undefined')


def test_a_variant_is_applied_and_a_search_is_followed_and_stopped(opened, tmp_path):
    opened.append(terminal := Terminal(tmp_path, "softmax.py"))
    terminal.waits_for("def softmax_kernel")
    terminal.press(*KERNEL)
    terminal.waits_for(r"15:13\s*$")
    terminal.asks_for(r"\| sm_\d+ \|", "Space", "k")
    terminal.asks_for(f"{re.escape(OFFER)}.*\n.* Refine softmax_kernel", *ACTIONS)
    terminal.press("Down", "Enter")
    terminal.waits_for(r"refine-\d+\] \d+% .*\d+ candidates, \d+ correct, \d:\d\d left")
    terminal.asks_for(f"{re.escape(OFFER)}.*\n.* Stop refining softmax_kernel", *ACTIONS)
    terminal.press("Down", "Enter")
    terminal.waits_for("it was cancelled; what was found before is kept")
    terminal.asks_for(re.escape(OFFER), *ACTIONS)
    terminal.press("Enter")
    terminal.waits_for(r"num_warps=2\)")
    terminal.press(":w", "Enter")
    terminal.waits_for(r"\d+ checks passed")  # saving checks it
    assert "num_warps=2)" in (tmp_path / "softmax.py").read_text()
    assert "Apply" not in terminal.asks_for("Check softmax.py", *ACTIONS)
