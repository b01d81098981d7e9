"""A tiny model that has learned answers by heart, built when a test first asks for it and kept by its content."""

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDER = Path(__file__).with_name("overfit.py")
VLLM_PYTHON = Path(os.environ.get("TEST_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
"""The Python that has vLLM: `.ci/run` installs the build for CPUs there."""

needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.skipif(not VLLM_PYTHON.exists(), reason=f"no vLLM at {VLLM_PYTHON}; .ci/run installs it"),
]


@dataclass(frozen=True, slots=True)
class Learned:
    """An answer to learn: `messages` are (role, content), `reasoning` what comes before `</think>`.

    Where `answer` is None, the reasoning (a few hundred times the same) never ends.
    """

    messages: tuple[tuple[str, str], ...]
    reasoning: str
    answer: str | None


def learned_model(examples: Sequence[Learned], cache: Path = ROOT / ".cache/models") -> Path:
    """The folder of a model that gives each answer to its prompt when it samples greedily, or nearly so.

    Building takes 20 to 60 s on two cores. `adapter/` in the folder is a LoRA adapter that changes every answer.
    """
    asked = [
        asdict(e) | {"messages": [{"role": role, "content": content} for role, content in e.messages]} for e in examples
    ]
    text = json.dumps(asked, sort_keys=True)
    digest = hashlib.sha256(text.encode() + BUILDER.read_bytes()).hexdigest()[:16]
    folder = cache / digest
    if (folder / "config.json").exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    draft = cache / f"{digest}.{os.getpid()}"
    learn = cache / f"{digest}.{os.getpid()}.json"
    learn.write_text(text)
    done = subprocess.run([VLLM_PYTHON, BUILDER, learn, draft], capture_output=True, text=True, check=False)
    learn.unlink()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    try:
        draft.rename(folder)
    except OSError:  # another test process was as quick
        assert (folder / "config.json").exists()
    return folder
