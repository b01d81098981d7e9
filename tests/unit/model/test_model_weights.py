"""Finding a model's weights, and knowing what they take before anything is loaded."""

import json

import pytest
from kernel_model_server.weights import find_weights, read_weights

from kernel_lsp.config.load import load_settings
from kernel_lsp.model.errors import NoWeightsError, WrongArchitectureError
from kernel_lsp.model.profile import find_profile, profiles

SHAPES = {  # of the published configurations
    "kevin-32b": ("Qwen2ForCausalLM", 5120, 64, 40, 8, 27648, 152064),
    "drkernel-14b": ("Qwen3ForCausalLM", 5120, 40, 40, 8, 17408, 151936),
    "autotriton-8b": ("Qwen3ForCausalLM", 4096, 36, 32, 8, 12288, 151936),
}


def model(folder, shape=SHAPES["kevin-32b"], **more):
    folder.mkdir(parents=True)
    architecture, hidden, layers, heads, kv_heads, intermediate, vocab = shape
    config = {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": 40960,
    }
    (folder / "config.json").write_text(json.dumps(config | more))
    return folder


def settings(tmp_path, **said):
    said = {f"model.{name}": value for name, value in said.items()}
    return load_settings(overrides={"paths.data": tmp_path / "data"} | said, environment={})[0]


@pytest.fixture(autouse=True)
def _own_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


@pytest.mark.parametrize("name", SHAPES)
def test_profiles_tables_are_what_the_shapes_give(name, tmp_path):
    profile = find_profile(name)
    found = read_weights(model(tmp_path / name, SHAPES[name]), profile).memory
    assert profile.memory is not None
    assert found.cache_bytes_per_token == profile.memory.cache_bytes_per_token
    for dtype, size in profile.memory.weights_gib.items():
        assert found.weights_gib[dtype] == pytest.approx(size, abs=0.15), dtype


def test_numbers_are_counted_in_the_files_where_there_are_some(tmp_path):
    folder = model(tmp_path / "m")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**20, 2**14], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert read_weights(folder, find_profile("kevin-32b")).memory.weights_gib["bf16"] == 32.0


def test_weights_are_found_where_downloads_put_them(tmp_path):
    kevin = find_profile("kevin-32b")
    hub = tmp_path / "hf/hub/models--cognition-ai--Kevin-32B"
    folder = model(hub / "snapshots/abc")
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("abc")
    assert find_weights(kevin, settings(tmp_path)).folder == folder
    nearer = model(tmp_path / "data/models/kevin-32b")
    assert find_weights(kevin, settings(tmp_path)).folder == nearer
    named = model(tmp_path / "mine")
    assert find_weights(kevin, settings(tmp_path, weights=named)).folder == named
    assert find_weights(kevin, settings(tmp_path, weights=named), folder).folder == folder


def test_missing_weights_say_where_they_were_looked_for_and_how_to_get_them(tmp_path):
    with pytest.raises(NoWeightsError) as caught:
        find_weights(find_profile("kevin-32b"), settings(tmp_path))
    said = str(caught.value)
    assert str(tmp_path / "data/models/kevin-32b") in said
    assert str(tmp_path / "hf/hub/models--cognition-ai--Kevin-32B") in said
    assert "`hf download cognition-ai/Kevin-32B`" in said
    assert "model.weights" in said


@pytest.mark.parametrize(("name", "what"), [("general", "no weights of its own"), ("kernelcoder", "is an adapter")])
def test_a_profile_without_weights_asks_for_a_folder(tmp_path, name, what):
    with pytest.raises(NoWeightsError, match=what):
        find_weights(find_profile(name), settings(tmp_path))


def test_wrong_architecture(tmp_path):
    folder = model(tmp_path / "m", SHAPES["drkernel-14b"])
    with pytest.raises(WrongArchitectureError, match="is a Qwen3ForCausalLM; kevin-32b is a Qwen2ForCausalLM"):
        read_weights(folder, find_profile("kevin-32b"))
    assert read_weights(folder, find_profile("general")).heads == 40


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "holds no model"),
        ({"config.json": "{"}, "holds no model"),
        ({"config.json": '{"architectures": ["T5Model"]}'}, "shape is not understood"),
        ({"adapter_config.json": "{}"}, "a LoRA adapter and no model of its own"),
    ],
)
def test_what_is_no_model(tmp_path, files, what):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(WrongArchitectureError, match=what):
        read_weights(tmp_path, find_profile("general"))


@pytest.mark.parametrize(
    ("quantization", "stored"),
    [(None, None), ({"quant_method": "awq", "bits": 4}, "4bit"), ({"quant_method": "fp8"}, "fp8")],
)
def test_quantised_weights_are_known(tmp_path, quantization, stored):
    folder = model(tmp_path / "m", quantization_config=quantization)
    assert read_weights(folder, find_profile("kevin-32b")).stored == stored


def test_a_model_that_reasons_is_known_by_its_template(tmp_path):
    folder = model(tmp_path / "m")
    assert not read_weights(folder, find_profile("general")).reasons
    (folder / "tokenizer_config.json").write_text('{"chat_template": "<|im_start|>assistant <think>"}')
    assert read_weights(folder, find_profile("general")).reasons
    (folder / "chat_template.jinja").write_text("<|im_start|>assistant")
    assert not read_weights(folder, find_profile("general")).reasons


def test_there_are_the_profiles_that_are_promised():
    assert {"kevin-32b", "drkernel-14b", "autotriton-8b", "kernelcoder", "general"} <= set(profiles())
