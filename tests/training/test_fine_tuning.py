"""A tiny model is fine-tuned on the CPU through the real command, killed, and taken up again."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kernel_lsp.learn.base_model import read_base_model
from kernel_lsp.learn.collect import collect
from kernel_lsp.learn.memory import adapter_parameters
from kernel_lsp.learn.prune import Rules
from kernel_lsp.store.store import open_store
from tests.training.command import ROOT, call, environment
from tests.unit.learn.made_up import told

PYTHON = Path(os.environ.get("TEST_TRAIN_PYTHON", ROOT / ".venv-train/bin/python"))
"""The Python that has what trains: `.ci/run` installs it there."""
pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"nothing that trains at {PYTHON}; .ci/run installs it"),
]
EPOCHS, STEPS = 6, 18
ANSWER = "```\nint at = blockIdx.x;\n```\nKernel {n} uses fewer registers."
CHANGES = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
base, adapter = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(base)
said = [{"role": "user", "content": "make k1 faster"}]
asked = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = tokenizer("```\\nint at = blockIdx.x;\\n```", add_special_tokens=False, return_tensors="pt")["input_ids"]
whole = torch.cat((asked["input_ids"], answer), 1)
labels = whole.clone()
labels[:, : asked["input_ids"].shape[1]] = -100
model = AutoModelForCausalLM.from_pretrained(base)
with torch.no_grad():
    before = model(whole, labels=labels).loss.item()
    after = PeftModel.from_pretrained(model, adapter)(whole, labels=labels).loss.item()
print(before, after)
"""


def made(folder: Path, template: str) -> Path:
    subprocess.run([PYTHON, Path(__file__).with_name("tiny_model.py"), folder, template], check=True)
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with open_store(folder / "data") as store:
        for n in range(16):
            told(store, folder, f"s{n}", 2, kernel=f"k{n}", before=["first"], answer=ANSWER.format(n=f"{n} " * n))
        collect(store, folder / "dataset", Rules(), 0.3)
    return folder / "dataset"


def start(folder: Path, dataset: Path, model: Path, *more: str) -> "subprocess.Popen[str]":
    settings = {"PATHS_DATA": folder, "LEARN_PYTHON": PYTHON, "LEARN_RATE": 0.02, "LEARN_CHECKPOINT": 1}
    settings |= {"LEARN_BATCH": 4, "LEARN_RANK": 4, "LEARN_LENGTH": 512}
    command = call("model", "train", "sft", dataset, "--weights", model, *more)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(settings), cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def finished(process: "subprocess.Popen[str]", code: int = 0) -> str:
    out, err = process.communicate(timeout=250)
    assert process.returncode == code, out + err
    return out + err


def losses(said: str) -> list[float]:
    return [float(one) for one in re.findall(r"step \d+/\d+: loss ([\d.]+), [\d,]+ tokens", said)]


@pytest.fixture(scope="module")
def calm(tmp_path_factory, dataset, model) -> tuple[Path, str]:
    """Return the data folder of a training that nothing disturbed, and what it said."""
    folder = tmp_path_factory.mktemp("calm")
    return folder, finished(start(folder, dataset, model, "--epochs", str(EPOCHS)))


def test_the_loss_falls_and_the_adapter_changes_the_model(calm, model):
    folder, said = calm
    found = losses(said)
    assert len(found) == STEPS
    assert found[-1] < 0.8 * found[0]
    assert "tokens/s" in said
    assert re.search(r"loss [\d.]+ on the kernels that are held out", said)
    adapter = folder / "adapters/sft/adapter"
    assert f"sft is in {adapter}" in said
    done = subprocess.run([PYTHON, "-c", CHANGES, model, adapter], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < 0.8 * before
    assert {path.suffix for path in adapter.iterdir()} <= {".json", ".safetensors", ".md", ".jinja"}, "no pickles"
    assert (folder / "adapters/sft").stat().st_mode & 0o077 == 0


def test_an_adapter_is_as_large_as_was_planned(calm, model):
    adapter = calm[0] / "adapters/sft/adapter/adapter_model.safetensors"
    raw = adapter.read_bytes()
    head = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    shapes = [one["shape"] for name, one in head.items() if name != "__metadata__"]
    assert sum(rows * columns for rows, columns in shapes) == adapter_parameters(read_base_model(model), 4)


@pytest.mark.thorough
def test_killed_at_any_step_it_goes_on_and_ends_in_the_same_adapter(calm, dataset, model, tmp_path):
    process = start(tmp_path, dataset, model, "--epochs", str(EPOCHS))
    folder = tmp_path / "adapters/sft"
    until = time.monotonic() + 200
    while time.monotonic() < until and not (folder / "checkpoint-3/trainer_state.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    [trainer] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(trainer), signal.SIGKILL)
    said = finished(process, code=3)
    assert "was killed by signal 9" in said
    assert "goes on from the last checkpoint" in " ".join(said.split())
    torn = folder / "checkpoint-99"
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_step"')
    said = finished(start(tmp_path, dataset, model, "--epochs", str(EPOCHS)))
    assert (resumed := re.search(r"goes on after step (\d+)", said))
    assert 3 <= int(resumed[1]) < STEPS
    assert len(losses(said)) == STEPS - int(resumed[1])
    name = "adapters/sft/adapter/adapter_model.safetensors"
    assert (tmp_path / name).read_bytes() == (calm[0] / name).read_bytes()
    assert not list(folder.glob("checkpoint-*")), "what is done needs no checkpoints"
    assert "was trained on this dataset before" in finished(start(tmp_path, dataset, model, "--epochs", str(EPOCHS)))


@pytest.mark.thorough
def test_a_template_that_drops_turns_is_refused(dataset, tmp_path):
    said = finished(start(tmp_path, dataset, made(tmp_path / "model", "forgetful")), code=2)
    assert "chat template leaves out or changes a message of the user" in " ".join(said.split())
