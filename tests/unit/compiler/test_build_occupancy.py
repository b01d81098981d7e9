"""Occupancy against NVIDIA's own header where one is installed, and against figures anyone can check by hand."""

import ctypes
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from kernel_lsp.compiler.machine_code.occupancy import Lever, Limiter, next_cliffs, occupancy
from kernel_lsp.compiler.toolchain.toolkit import header_folders
from kernel_lsp.device.architectures import ARCHITECTURES, arch_number, base_arch

ORACLE = r"""
#include <limits.h>
#include "cuda_occupancy.h"
extern "C" int blocks(int major, int minor, int threads_sm, int blocks_regs, int shared_sm, int shared_block,
                      int reserved, int registers, int barriers, int shared_static, int shared_dynamic, int block) {
  cudaOccDeviceProp p;
  p.computeMajor = major; p.computeMinor = minor;
  p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = threads_sm;
  p.regsPerBlock = blocks_regs; p.regsPerMultiprocessor = blocks_regs; p.warpSize = 32; p.numSms = 1;
  p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared_sm; p.sharedMemPerBlockOptin = shared_block;
  p.reservedSharedMemPerBlock = reserved;
  cudaOccFuncAttributes a;
  a.maxThreadsPerBlock = INT_MAX; a.numRegs = registers; a.sharedSizeBytes = shared_static;
  a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  a.maxDynamicSharedSizeBytes = INT_MAX; a.numBlockBarriers = barriers;
  cudaOccDeviceState s;
  cudaOccResult r;
  int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, block, shared_dynamic);
  return error ? -error : r.activeBlocksPerMultiprocessor;
}
"""


UNKNOWN = -2
"""The header's answer for an architecture that it does not know."""
Oracle = Callable[..., int]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Blocks by the toolkit's header, for an architecture and registers, barriers, shared memory and threads."""
    header = next((f for f in header_folders() if (f / "cuda_occupancy.h").is_file()), None)
    compiler = shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("needs cuda_occupancy.h and g++")
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.cpp").write_text(ORACLE)
    command = [compiler, "-O1", "-shared", "-fPIC", "-w", f"-I{header}", str(folder / "oracle.cpp")]
    subprocess.run([*command, "-o", str(folder / "oracle.so")], check=True)
    blocks = ctypes.CDLL(str(folder / "oracle.so")).blocks

    def ask(arch: str, registers: int, barriers: int, static: int, dynamic: int, threads: int) -> int:
        limits = ARCHITECTURES[arch]
        shared = (limits.shared_bytes, limits.block_shared_bytes, limits.reserved_shared_bytes)
        kernel = (registers, barriers, static, dynamic, threads)
        return blocks(*divmod(arch_number(arch), 10), limits.threads, 65536, *shared, *kernel)

    return ask


def known_to(oracle: Oracle) -> list[str]:
    """The architectures of our table that the installed header knows as the latest one does.

    That of CUDA 13.0 gives sm_103 twice the barriers that 13.5 gives it.
    """
    known = [arch for arch in ARCHITECTURES if oracle(arch, 32, 1, 0, 0, 128) != UNKNOWN]
    return [arch for arch in known if arch != "sm_103" or oracle(arch, 16, 16, 0, 0, 32) == 2]


def test_occupancy_agrees_with_the_toolkits_header_on_200000_random_kernels(oracle: Oracle) -> None:
    known = known_to(oracle)
    assert {"sm_80", "sm_90", "sm_120"} <= set(known), "the header is older than CUDA 12.8"
    dice = random.Random(20)
    seen_zero = seen_some = 0
    for _ in range(200_000):
        arch = dice.choice(known)
        registers, threads, barriers = dice.randint(1, 255), dice.randint(1, 1024), dice.randint(0, 16)
        static = dice.choice([0, dice.randint(0, 48 * 1024)])
        dynamic = dice.choice([0, dice.randint(0, 220 * 1024)])
        expected = oracle(arch, registers, barriers, static, dynamic, threads)
        ours = occupancy(arch, registers, static + dynamic, threads, barriers)
        assert ours.blocks == max(expected, 0), (
            f"{arch}: {registers} registers, {threads} threads, {barriers} barriers, {static} + {dynamic} bytes: "
            f"{ours.blocks} blocks by `ARCHITECTURES`, {expected} by the toolkit's header (an error if negative)"
        )
        seen_zero += ours.blocks == 0
        seen_some += ours.blocks > 0
    assert min(seen_zero, seen_some) > 1000


def test_an_architecture_later_than_the_header_is_not_held_against_it(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = known_to(oracle)
    monkeypatch.setitem(ARCHITECTURES, "sm_990", ARCHITECTURES["sm_120"])
    assert known_to(oracle) == before


def test_a_full_multiprocessor() -> None:
    full = occupancy("sm_90", registers=32, shared_bytes=0, threads=256)
    assert (full.blocks, full.warps, full.share) == (8, 64, 1.0)
    assert full.limiters == (Limiter.WARPS, Limiter.REGISTERS)
    assert next_cliffs("sm_90", registers=32, shared_bytes=0, threads=256) == ()


def test_registers_limit_and_the_cliff_says_what_to_save() -> None:
    tight = occupancy("sm_90", registers=34, shared_bytes=0, threads=256)
    assert (tight.blocks, tight.share, tight.limiters) == (6, 0.75, (Limiter.REGISTERS,))
    cliff = next_cliffs("sm_90", 34, 0, 256)[0]
    assert (cliff.lever, cliff.change, cliff.blocks, cliff.share) == (Lever.REGISTERS, -2, 8, 1.0)


def test_shared_memory_limits_and_its_cliff_is_exact() -> None:
    tight = occupancy("sm_80", registers=32, shared_bytes=60 * 1024, threads=256)
    assert (tight.blocks, tight.limiters) == (2, (Limiter.SHARED,))
    cliff = next(cliff for cliff in next_cliffs("sm_80", 32, 60 * 1024, 256) if cliff.lever is Lever.SHARED)
    assert cliff.blocks == 3
    assert occupancy("sm_80", 32, 60 * 1024 + cliff.change, 256).blocks == 3
    assert occupancy("sm_80", 32, 60 * 1024 + cliff.change + 1, 256).blocks == 2


def test_a_block_size_that_leaves_warps_over_has_a_better_one() -> None:
    wide = occupancy("sm_90", registers=32, shared_bytes=0, threads=768)
    assert (wide.warps, wide.limiters) == (48, (Limiter.WARPS, Limiter.REGISTERS))
    (cliff,) = next_cliffs("sm_90", 32, 0, 768)
    assert (cliff.lever, cliff.change, cliff.blocks, cliff.share) == (Lever.THREADS, -256, 4, 1.0)


def test_every_cliff_holds_and_nothing_short_of_it_helps() -> None:
    dice = random.Random(3)
    seen: Counter[Lever] = Counter()
    for _ in range(1000):
        arch = dice.choice(list(ARCHITECTURES))
        now = {
            Lever.REGISTERS: dice.randint(1, 255),
            Lever.SHARED: dice.randint(0, 90_000),
            Lever.THREADS: dice.randint(1, 1024),
            Lever.BARRIERS: dice.randint(0, 16),
        }
        before = occupancy(arch, *now.values())
        for cliff in next_cliffs(arch, *now.values()):
            seen[cliff.lever] += 1
            then = occupancy(arch, *(now | {cliff.lever: now[cliff.lever] + cliff.change}).values())
            assert (then.blocks, then.share) == (cliff.blocks, cliff.share)
            assert then.share > before.share
            if cliff.lever is Lever.THREADS:
                sizes = [occupancy(arch, *(now | {cliff.lever: size}).values()).share for size in range(32, 1025, 32)]
                assert then.share == max(sizes)
            else:
                short = now | {cliff.lever: now[cliff.lever] + cliff.change + 1}
                assert occupancy(arch, *short.values()).share == before.share
    assert min(seen[lever] for lever in Lever) > 20


def test_a_kernel_that_cannot_be_launched_has_none() -> None:
    assert occupancy("sm_86", registers=32, shared_bytes=100 * 1024, threads=128).share == 0
    assert occupancy("sm_86", registers=255, shared_bytes=0, threads=1024).limiters == (Limiter.REGISTERS,)


def test_suffixes_share_the_limits_of_their_architecture() -> None:
    assert base_arch("sm_90a") == "sm_90"
    assert occupancy("sm_100f", 64, 0, 128) == occupancy("sm_100", 64, 0, 128)


@pytest.mark.parametrize("threads", [0, 1025])
def test_a_block_size_that_does_not_exist_is_refused(threads: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        occupancy("sm_90", 32, 0, threads)
