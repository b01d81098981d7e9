"""A training is refused before it starts where it cannot work, and the refusal says what would."""

import asyncio
import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.model import app
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import CannotJudgeError, ConfigurationError, RunnerError
from kernel_lsp.learn import sft
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.collect import collect
from kernel_lsp.learn.memory import GIB, Training, adapter_parameters, need, what_fits
from kernel_lsp.learn.prune import Rules
from kernel_lsp.learn.trainer.conversations import NotTrainableError, completion, tokenised
from kernel_lsp.learn.training import whole_checkpoint
from kernel_lsp.model.errors import DoesNotFitError, NoWeightsError
from kernel_lsp.store.store import open_store
from tests.unit.learn.made_up import told

QWEN_7B = BaseModel(Path("/"), 7_615_616_512, 28, 3584, 18944, 28, 4, 128, 152_064, 32768, "")
CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 261,
    "max_position_embeddings": 16384,
}


@pytest.fixture
def dataset(tmp_path) -> Path:
    with open_store(tmp_path / "data") as store:
        told(store, tmp_path, "s", 1)
        collect(store, tmp_path / "dataset", Rules(), 0.0)
    return tmp_path / "dataset"


@pytest.fixture
def weights(tmp_path) -> Path:
    return model_in(tmp_path / "weights")


def model_in(folder: Path) -> Path:
    """The folder of a model that has sizes, and no weights that anything could load."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tensors(folder / "model.safetensors", [[261, 64], [128, 64]])
    return folder


def write_tensors(file: Path, shapes: list[list[int]]) -> None:
    head = {f"t{n}": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for n, shape in enumerate(shapes)}
    text = json.dumps(head | {"__metadata__": {"format": "pt"}}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)


def settings(tmp_path: Path, **changes: object) -> Settings:
    overrides = {"paths.data": tmp_path / "home"} | {f"learn.{name}": value for name, value in changes.items()}
    return load_settings(overrides=overrides)[0]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_a_models_size_is_read_from_the_heads_of_its_files(weights):
    found = read_base_model(weights)
    assert (found.parameters, found.head, found.key_heads) == (261 * 64 + 128 * 64, 16, 2)
    write_tensors(weights / "model-2.safetensors", [[10]])
    assert read_base_model(weights).parameters == found.parameters + 10
    assert read_base_model(weights).identity == found.identity
    (weights / "tokenizer.json").write_text("{}")
    assert read_base_model(weights).identity != found.identity, "an adapter is of one tokenizer"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.json", None, "there is no `config.json`"),
        ("config.json", "{", "there is no `config.json`"),
        ("config.json", "[]", "there is no `config.json`"),
        ("config.json", '{"hidden_size": 4}', "has no 'num_attention_heads'"),
        ("config.json", json.dumps(CONFIG | {"hidden_size": "wide"}), "cannot be used"),
        ("model.safetensors", None, "no weights in safetensors"),
        ("model.safetensors", "", "damaged"),
        ("model.safetensors", "12345678{", "damaged"),
    ],
)
def test_a_folder_without_a_model_is_named(weights, name, text, said):
    (weights / name).unlink() if text is None else (weights / name).write_text(text)
    with pytest.raises(NoWeightsError, match=said):
        read_base_model(weights)


def test_the_weights_of_an_adapter():
    # of each layer and rank: q and o 2 * (3584 + 3584), k and v 2 * (3584 + 512), the rest 3 * (3584 + 18944)
    assert adapter_parameters(QWEN_7B, 16) == 16 * 28 * (14336 + 8192 + 67584)


def test_what_would_fit_fits_and_is_the_longest():
    wanted = Training(32, 8192, gpu=True)
    assert need(QWEN_7B, wanted).weights == 2 * QWEN_7B.parameters
    free = 24 * GIB
    assert need(QWEN_7B, wanted).total > free
    found = what_fits(QWEN_7B, wanted, free)
    assert found is not None
    assert need(QWEN_7B, found).total <= free
    longer = Training(found.rank, found.length + 512, gpu=True)
    assert need(QWEN_7B, longer).total > free
    assert found.rank == 32, "a shorter length is tried before a lower rank"
    assert what_fits(QWEN_7B, wanted, 14 * GIB) is None
    assert what_fits(QWEN_7B, wanted, 80 * GIB) == wanted


def test_a_training_that_does_not_fit_is_refused_with_what_would(dataset, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(sft, "free_on", lambda _: 1.02 * GIB)
    with pytest.raises(DoesNotFitError, match=r"takes about 1\.\d GiB .* and 1\.0 GiB are free.*`learn.length` \d+"):
        sft.plan_sft(dataset, "a", settings(tmp_path), weights)
    monkeypatch.setattr(sft, "free_on", lambda _: 0.1 * GIB)
    with pytest.raises(DoesNotFitError, match="Nothing shorter fits either"):
        sft.plan_sft(dataset, "a", settings(tmp_path), weights)
    assert not (tmp_path / "home").exists()


def test_a_plan_is_for_one_job(dataset, weights, tmp_path):
    planned = sft.plan_sft(dataset, "a", settings(tmp_path), weights)
    planned.folder.mkdir(parents=True)
    (planned.folder / "job.json").write_text(planned.job.model_dump_json())
    assert sft.plan_sft(dataset, "a", settings(tmp_path, checkpoint=3), weights).job.rank == 32
    dataset.rename(tmp_path / "moved")
    assert sft.plan_sft(tmp_path / "moved", "a", settings(tmp_path), weights)
    with pytest.raises(ConfigurationError, match=r"`a` was trained otherwise: rank was 32.*--adapter, or .*--anew"):
        sft.plan_sft(tmp_path / "moved", "a", settings(tmp_path, rank=8), weights)
    (planned.folder / "job.json").write_text("{")
    with pytest.raises(ConfigurationError, match="trained otherwise"):
        sft.plan_sft(tmp_path / "moved", "a", settings(tmp_path), weights)
    sft.forget("a", settings(tmp_path))
    assert sft.plan_sft(tmp_path / "moved", "a", settings(tmp_path, rank=8), weights).job.rank == 8


def test_what_cannot_be_trained_is_said(dataset, weights, tmp_path):
    for name in ("../up", "", ".", "a b"):
        with pytest.raises(ConfigurationError, match="cannot be the name of an adapter"):
            sft.plan_sft(dataset, name, settings(tmp_path), weights)
    with pytest.raises(ConfigurationError, match="No base model is named"):
        sft.plan_sft(dataset, "a", settings(tmp_path))
    with pytest.raises(ConfigurationError, match="20,000 tokens, and the model reads 16,384 at most"):
        sft.plan_sft(dataset, "a", settings(tmp_path, length=20000), weights)
    (dataset / "README.md").unlink()
    with pytest.raises(ConfigurationError, match=r"holds no whole dataset.*if it was killed, run it again"):
        sft.plan_sft(dataset, "a", settings(tmp_path), weights)


def test_a_python_that_cannot_train_is_named(dataset, weights, tmp_path):
    python = tmp_path / "bare"
    python.write_text('#!/bin/sh\necho "peft, trl" >&2\nexit 1\n')
    python.chmod(0o755)
    for program, said in ((python, r"lacks peft, trl.*kernel-lsp\[train\]"), (tmp_path / "no", "cannot be started")):
        chosen = settings(tmp_path, python=program)
        planned = sft.plan_sft(dataset, "a", chosen, weights)
        with pytest.raises(CannotJudgeError, match=said):
            asyncio.run(sft.run_sft(planned, chosen, lambda _: None))


def test_a_process_that_dies_leaves_its_last_words(dataset, weights, tmp_path):
    python = tmp_path / "dies"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "no space left" >&2\nexit 7\n')
    python.chmod(0o755)
    chosen = settings(tmp_path, python=python)
    planned = sft.plan_sft(dataset, "a", chosen, weights)
    with pytest.raises(RunnerError, match=r"ended with 7: no space left.*goes on from the last checkpoint"):
        asyncio.run(sft.run_sft(planned, chosen, lambda _: None))


def test_the_command_explains_itself(dataset, tmp_path):
    done = CliRunner().invoke(app, ["train", "sft", str(dataset), "--weights", str(tmp_path)])
    assert isinstance(done.exception, NoWeightsError)


def test_a_checkpoint_is_whole_when_its_last_file_is(tmp_path):
    assert not whole_checkpoint(tmp_path)
    for name in ("adapter_model.safetensors", "optimizer.pt"):
        (tmp_path / name).touch()
    (tmp_path / "trainer_state.json").write_text('{"step": 1')
    assert not whole_checkpoint(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"step": 1}')
    assert whole_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "reasoning", "expected"),
    [
        ("user\nassistant\n", "", "so"),
        ("user\nassistant\n", "hm", "<think>\nhm\n</think>\n\nso"),
        ("user\nassistant\n<think>\n", "hm", "hm\n</think>\n\nso"),
        ("user\nassistant\n<think>\n", "", "\n</think>\n\nso"),
    ],
)
def test_reasoning_is_opened_once(prompt, reasoning, expected):
    assert completion(prompt, reasoning, "so") == expected


class Letters:
    """A tokenizer whose tokens are letters."""

    chat_template, eos_token = "whole", "$"

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        return "".join(one["content"] for one in conversation if self.chat_template == "whole" or one["role"] != "user")

    def __call__(self, text, *, add_special_tokens):
        return {"input_ids": [ord(letter) for letter in text]}


def test_only_the_answer_is_learned(dataset):
    [line] = [json.loads(one) for one in (dataset / "train.jsonl").read_text().splitlines()]
    [row], longer = tokenised(Letters(), dataset / "train.jsonl", 10_000)
    text = "".join(map(chr, row["input_ids"]))
    learned = "".join(letter for letter, used in zip(text, row["completion_mask"], strict=True) if used)
    assert learned == f"<think>\nhm\n</think>\n\n{line['answer']}$"
    assert text == "make k faster" + learned
    assert longer == 0
    assert tokenised(Letters(), dataset / "train.jsonl", 20) == ([], 1)


def test_a_model_without_a_template_for_all_of_it_is_refused(dataset):
    for template, said in (("", "no chat template"), ("forgetful", "leaves out or changes a message of the user")):
        tokenizer = Letters()
        tokenizer.chat_template = template
        with pytest.raises(NotTrainableError, match=said):
            tokenised(tokenizer, dataset / "train.jsonl", 10_000)
