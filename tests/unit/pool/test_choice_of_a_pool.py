"""Which pool is opened, and which lanes of a cluster are refused; no Ray is needed."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool import cluster
from kernel_lsp.pool.choice import opened_pool
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.pool.ray import RayPool
from kernel_lsp.pool.remote import LaneOffer, program

H200 = Gpu(0, "NVIDIA H200", "GPU-1", "sm_90", "580.1", 140 << 30)
OFFER = LaneOffer("here", H200, program(), {"torch": "2.13", "driver": "580.1"}, trouble="")


def settings_of(address: str):
    return load_settings(overrides={"pool.address": address})[0]


@pytest.mark.parametrize(
    "address", ["local", "ray", "ray://head:6379", "ray://10.0.0.1:6379", "ray://[fe80::1]:6379", "slurm:8"]
)
def test_addresses_of_pools(address):
    assert settings_of(address).pool.address == address


@pytest.mark.parametrize(
    "address", ["", "slurm:", "slurm:0", "ray://head", "ray://:1", "ray://head:port", "http://head:1", "Ray"]
)
def test_what_is_no_address(address):
    with pytest.raises(ConfigurationError, match=r"pool\.address"):
        settings_of(address)


def test_by_default_lanes_are_here_and_ray_is_not_imported():
    code = (
        "import sys; from kernel_lsp.config.load import load_settings; from kernel_lsp.pool.choice import opened_pool\n"
        "with opened_pool(load_settings()[0]) as pool: print(type(pool).__name__, 'ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [LocalPool.__name__, "False"]


def test_ray_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(cluster.os, "environ", {})
    with pytest.raises(ConfigurationError, match=r"pip install 'kernel-lsp\[pool\]'"), opened_pool(settings_of("ray")):
        pass


def test_slurm_that_is_not_here_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.setattr(cluster.os, "environ", {})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="no `srun` here"), opened_pool(settings_of("slurm:2")):
        pass


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"host": "elsewhere", "gpu": replace(H200, index=3, uuid="GPU-2")}, ""),
        ({"trouble": "no GPU"}, "no GPU"),
        ({"program": ("9.9", "abc")}, "another kernel-lsp: 9.9 abc"),
        ({"gpu": replace(H200, name="NVIDIA L40S")}, "it has NVIDIA L40S, the others NVIDIA H200"),
        ({"gpu": None}, "it has no GPU, the others NVIDIA H200"),
        ({"versions": {"torch": "2.12", "driver": "580.1"}}, "it has torch 2.12, the others 2.13"),
    ],
)
def test_a_lane_of_another_kind_is_refused(changes, words):
    pool = RayPool(SimpleNamespace(), settings_of("ray"))
    pool._kind = OFFER
    said = pool._violation(msgspec.structs.replace(OFFER, **changes))
    assert words in said
    assert bool(said) == bool(words)
