"""The cache of builds: hits, eviction, damage, unwritable folders and several processes at once."""

import multiprocessing
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.compiler.toolchain.file_cache import cache_key


def build(size: int = 1000, seed: int = 0, ptx: str | None = ".version 9.0\n// é\n") -> Build:
    kernel = KernelFacts("_Z1kPf", "k", 32, 16, 400, ((0, 8), (8, 4)), 1, 0, 4, (256, 1, 1), None)
    cubin = random.Random(seed).randbytes(size)
    warning = Diagnostic("/home/me/k.cu", 3, 5, 3, 9, Severity.WARNING, "é", "549-D")
    return Build(Binary("sm_90", cubin, ptx, {"k": "_Z1kPf"}, (kernel,)), (warning,), "nvrtc", 0.25, log="words\n")


OF_TRITON = replace(build(), binary=replace(build().binary, ttgir="module attributes {}\n"), way="triton")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("stored", [build(), build(ptx=None), build(0), replace(build(), binary=None), OF_TRITON])
def test_what_is_put_comes_back_the_same_and_marked(stored: Build, tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache", 1 << 20)
    assert cache.get("ab" * 32) is None
    cache.put("ab" * 32, stored)
    assert cache.get("ab" * 32) == replace(stored, cached=True)
    assert BuildCache(tmp_path / "cache", 1 << 20).get("ab" * 32) == replace(stored, cached=True)


def test_keys_tell_apart_what_concatenation_would_not() -> None:
    keys = {cache_key(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [])}
    assert len(keys) == 5
    assert cache_key(["é"]) == cache_key(["é".encode()])


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, 50_000)
    keys = [f"{number:02x}" * 32 for number in range(4)]
    for age, key in zip((400, 300, 200, 100), keys, strict=True):
        cache.put(key, build(10_000))
        path = next(path for path in files(tmp_path) if key in path.name)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    assert cache.get(keys[0]) is not None, "used now, so no longer the oldest"
    cache.put("ff" * 32, build(10_000))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 50_000


def test_a_limit_of_zero_keeps_nothing(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, 0)
    cache.put("ab" * 32, build())
    assert cache.get("ab" * 32) is None
    assert files(tmp_path) == []


@pytest.mark.parametrize("where", [0, 70, 200, -1, -900])
def test_damage_anywhere_is_noticed_and_the_entry_dropped(where: int, tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, 1 << 20)
    cache.put("ab" * 32, build())
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[where] ^= 0x55
    path.write_bytes(data)
    assert cache.get("ab" * 32) is None
    assert not path.exists()
    cache.put("ab" * 32, build())
    assert cache.get("ab" * 32) is not None


@pytest.mark.parametrize("length", [0, 10, 300])
def test_a_cut_entry_is_dropped(length: int, tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, 1 << 20)
    cache.put("ab" * 32, build())
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    assert cache.get("ab" * 32) is None


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = BuildCache(tmp_path / "file" / "cache", 1 << 20)
    cache.put("ab" * 32, build())
    assert cache.get("ab" * 32) is None


def test_a_full_disk_costs_nothing_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache = BuildCache(tmp_path, 1 << 20)
    cache.put("ab" * 32, build())
    assert cache.get("ab" * 32) is None
    assert files(tmp_path) == []


def _hammer(folder: str, seed: int) -> int:
    cache, dice, wrong = BuildCache(Path(folder), 30_000), random.Random(seed), 0
    for _ in range(150):
        number = dice.randrange(6)
        key = f"{number:02x}" * 32
        found = cache.get(key)
        wrong += found is not None and found != replace(build(6_000, number), cached=True)
        cache.put(key, build(6_000, number))
    return wrong


def test_processes_share_it(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.starmap(_hammer, [(str(tmp_path), seed) for seed in range(3)]) == [0, 0, 0]
    assert not [path for path in files(tmp_path) if path.name.startswith("new-")]
