"""Which GPU is used, by the setting `gpu` and `--gpu`, on machines that are not there."""

import asyncio
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.check import app as check_app
from kernel_lsp.cli.console import settings_for
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device import choice, nvml
from kernel_lsp.device.choice import choose_gpu, choose_gpus
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.judge.session import start_pool

GPUS = (
    Gpu(0, "NVIDIA A100-SXM4-80GB", "GPU-aaaa1111", "sm_80", "580", 80 << 30, 108),
    Gpu(1, "NVIDIA GeForce RTX 4090", "GPU-bbbb2222", "sm_89", "580", 24 << 30, 128),
    Gpu(3, "NVIDIA GeForce RTX 4090", "GPU-bbbb3333", "sm_89", "580", 24 << 30, 128),
)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(choice, "find_gpus", lambda: GPUS)


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (None, 0),
        ("0", 0),
        ("1", 1),
        ("3", 3),
        ("GPU-bbbb3333", 3),
        ("GPU-bbbb", 1),
        ("A100", 0),
        ("rtx 4090", 1),
        ("NVIDIA GeForce RTX 4090", 1),
        ("a100-sxm4", 0),
    ],
)
def test_a_gpu_is_chosen_by_index_uuid_or_name(machine, wanted, index):
    found = choose_gpu(wanted)
    assert found is not None
    assert found.index == index


@pytest.mark.parametrize("wanted", ["2", "4", "GPU-cccc", "H100", "RTX 409", ""])
def test_an_unknown_one_is_told_what_there_is(machine, wanted):
    with pytest.raises(ConfigurationError) as error:
        choose_gpu(wanted)
    assert f"`gpu = {wanted}` names no GPU of this machine" in str(error.value)
    for gpu in GPUS:
        assert f"{gpu.index}: {gpu.name}, {gpu.uuid}" in str(error.value)


def test_without_a_gpu_none_is_used_and_none_can_be_wanted(monkeypatch):
    monkeypatch.setattr(choice, "find_gpus", lambda: ())
    assert choose_gpu(None) is None
    with pytest.raises(ConfigurationError, match="leave the setting out"):
        choose_gpu("0")


def test_several_begin_with_the_chosen_one(machine):
    assert [gpu.index for gpu in choose_gpus(None, None)] == [0]
    assert [gpu.index for gpu in choose_gpus("3", None)] == [3]
    assert [gpu.index for gpu in choose_gpus("3", 2)] == [3, 0]
    with pytest.raises(CannotJudgeError, match="4 GPUs are asked for"):
        choose_gpus("3", 4)


def test_what_is_compiled_for_is_the_gpu_itself_where_its_architecture_is_set(machine):
    found = choice.target_devices("1", ["sm_89", "H100"])
    assert {name: device.name for name, device in found.items()} == {"sm_89": GPUS[1].name, "H100": "H100"}
    assert list(choice.target_devices("1", [])) == ["sm_89"]
    assert choice.find_device("1", ["A100"]).name == GPUS[1].name


def test_workers_see_the_chosen_one_alone(machine):
    async def visible() -> str:
        async with start_pool(Settings(gpu="3")) as pool:
            program = await pool.program(["/usr/bin/env"])
            return (await program.end(deadline=30))[1]

    assert "CUDA_VISIBLE_DEVICES=GPU-bbbb3333" in asyncio.run(visible()).splitlines()


def test_the_setting_is_a_number_or_a_text_from_any_place(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp]\ngpu = 1\n")
    nowhere = tmp_path / "none.toml"
    assert load_settings(tmp_path, environment={}, user_file=nowhere)[0].gpu == "1"
    said = {"KERNEL_LSP_GPU": "RTX 4090"}
    assert load_settings(tmp_path, environment=said, user_file=nowhere)[0].gpu == "RTX 4090"
    assert settings_for(tmp_path, gpu="A100").gpu == "A100"
    assert load_settings(tmp_path, environment={"KERNEL_LSP_GPU": " "}, user_file=nowhere)[0].gpu is None


def test_an_unknown_target_is_an_error_where_it_stands(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-lsp]\narch = ["A100", "RTX 9999"]\n')
    with pytest.raises(ConfigurationError, match=r"`RTX 9999` is neither an architecture .*nor a known GPU") as error:
        load_settings(tmp_path, environment={}, user_file=tmp_path / "none.toml")
    assert error.value.line == 2


def test_a_command_says_which_gpus_there_are(machine, tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text("__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n")
    ran = CliRunner().invoke(check_app, [str(kernel), "--gpu", "H100"])
    assert isinstance(ran.exception, ConfigurationError)
    assert "1: NVIDIA GeForce RTX 4090, GPU-bbbb2222" in str(ran.exception)


def test_nvml_tells_multiprocessors_by_cores(monkeypatch):
    class RefusedError(Exception):
        pass

    def cores(handle):
        if handle == 1:
            raise RefusedError
        return 16384

    fake = SimpleNamespace(
        NVMLError=RefusedError,
        nvmlSystemGetDriverVersion=lambda: "580",
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCudaComputeCapability=lambda _: (8, 9),
        nvmlDeviceGetName=lambda _: "NVIDIA GeForce RTX 4090",
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=24 << 30, free=20 << 30),
        nvmlDeviceGetNumGpuCores=cores,
    )
    monkeypatch.setattr(nvml, "_loaded", [fake])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu.multiprocessors for gpu in nvml.find_gpus()] == [128, None]


def test_a_gpu_without_memory_of_its_own_has_the_machines(monkeypatch):
    class UnsupportedError(Exception):
        pass

    def memory(_handle):
        raise UnsupportedError

    library = SimpleNamespace(
        NVMLError=Exception,
        NVMLError_NotSupported=UnsupportedError,
        nvmlSystemGetDriverVersion=lambda: "580",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetCudaComputeCapability=lambda _: (12, 1),
        nvmlDeviceGetName=lambda _: "NVIDIA GB10",
        nvmlDeviceGetUUID=lambda _: "GPU-aaaa1111",
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetNumGpuCores=memory,
    )
    monkeypatch.setattr(nvml, "_nvml", lambda: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (gpu,) = nvml.find_gpus()
    assert (gpu.name, gpu.arch, gpu.multiprocessors) == ("NVIDIA GB10", "sm_121", None)
    assert 0 < nvml.free_bytes(gpu) <= gpu.memory_bytes
