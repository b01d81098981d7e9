"""What is known of GPUs by their names, and what of one that the driver tells about."""

from dataclasses import replace

import pytest

from kernel_lsp.device import architectures, device
from kernel_lsp.device.architectures import ARCHITECTURES, arch_number, base_arch, nearest_arch
from kernel_lsp.device.choice import target_device, target_devices
from kernel_lsp.device.device import DEVICES, device_named, device_of
from kernel_lsp.device.nvml import Gpu

GIB = 1 << 30


def gpu(name: str, arch: str, multiprocessors: int | None = None, memory: int = 24 * GIB) -> Gpu:
    return Gpu(0, name, "GPU-0", arch, "580", memory, multiprocessors)


@pytest.mark.parametrize(
    ("name", "arch", "multiprocessors", "threads"),
    [
        ("A100", "sm_80", 108, 2048),
        ("RTX 4090", "sm_89", 128, 1536),
        ("rtx-4090", "sm_89", 128, 1536),
        ("NVIDIA GeForce RTX 3090", "sm_86", 82, 1536),
        ("4080", "sm_89", 76, 1536),
        ("H100 PCIe", "sm_90", 114, 2048),
        ("h200", "sm_90", 132, 2048),
        ("RTX 5090", "sm_120", 170, 1536),
        ("sm_80", "sm_80", 108, 2048),
        ("sm_90a", "sm_90a", 132, 2048),
        ("sm_100f", "sm_100f", 148, 2048),
    ],
)
def test_a_gpu_or_an_architecture_has_its_own_numbers(name, arch, multiprocessors, threads):
    device = device_named(name)
    assert (device.arch, device.multiprocessors, device.limits.threads) == (arch, multiprocessors, threads)


@pytest.mark.parametrize("name", ["RTX 9999", "sm_42", "sm_999", "", "A", "sm_", "GeForce"])
def test_an_unknown_name_is_told_what_there_is(name):
    with pytest.raises(ValueError, match=r"sm_75, sm_80.*A100, A100 80GB.*RTX 4090"):
        device_named(name)


@pytest.mark.parametrize("name", ["SM_90", "sm90", "90", "compute_90", "sm-90"])
def test_an_architecture_written_otherwise_is_told_how(name):
    with pytest.raises(ValueError, match="did you mean `sm_90`"):
        device_named(name)


def test_an_architecture_without_a_gpu_of_its_own_keeps_its_limits(monkeypatch):
    limits = replace(ARCHITECTURES["sm_90"], threads=1664)
    monkeypatch.setitem(ARCHITECTURES, "sm_91", limits)
    device = device_named("sm_91")
    assert (device.name, device.limits) == ("sm_91", limits)
    assert device.multiprocessors == device_named("sm_90").multiprocessors


def test_every_row_is_of_a_known_architecture_and_has_a_name_of_its_own():
    assert all(device.arch in ARCHITECTURES for device in DEVICES)
    assert [device_named(device.name) for device in DEVICES] == list(DEVICES)
    numbers = [int(base_arch(device.arch)[3:]) for device in DEVICES]
    assert numbers == sorted(numbers)


def test_what_the_driver_says_of_a_gpu_holds_over_the_table():
    a100 = device_of(gpu("NVIDIA A100-SXM4-80GB", "sm_80", 108, 80 * GIB))
    assert (a100.name, a100.multiprocessors, a100.l2_bytes) == ("NVIDIA A100-SXM4-80GB", 108, 40 << 20)
    laptop = device_of(gpu("NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89", 76, 16 * GIB))
    assert (laptop.multiprocessors, laptop.memory_bytes) == (76, 16 * GIB)
    assert device_of(gpu("NVIDIA L4", "sm_89")).multiprocessors == 58  # a driver that does not say
    assert device_of(gpu("NVIDIA GeForce RTX 3060", "sm_86", 28)).multiprocessors == 28
    newest = max(ARCHITECTURES, key=arch_number)
    assert device_of(gpu("NVIDIA X1", "sm_990", 200)).limits == ARCHITECTURES[newest]


def test_what_is_built_for_is_the_gpu_then_the_setting_then_the_default():
    card = gpu("NVIDIA H100 80GB HBM3", "sm_90", 132)
    assert target_device(card, ["A100"]).name == "NVIDIA H100 80GB HBM3"
    assert target_device(card, ["A100", "sm_90a"]).arch == "sm_90a"
    assert target_device(None, ["RTX 4090", "A100"]).multiprocessors == 128
    assert target_device(None, []).arch == "sm_90"
    assert list(target_devices(None, ["A100", "sm_90"])) == ["A100", "sm_90"]


def test_the_nearest_architecture_is_found_in_whatever_order_the_rows_stand(monkeypatch):
    ordered = list(ARCHITECTURES.items())
    monkeypatch.setattr(architectures, "ARCHITECTURES", dict(reversed(ordered)))
    assert [nearest_arch(arch) for arch in ("sm_90a", "sm_99", "sm_10")] == ["sm_90", "sm_90", "sm_75"]
    monkeypatch.setattr(device, "DEVICES", sorted(DEVICES, key=lambda one: arch_number(one.arch), reverse=True))
    assert device_named("sm_87").multiprocessors == 16
