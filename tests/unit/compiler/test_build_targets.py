"""Architecture-specific targets: who asks for one, where it goes, and what ptxas says where it is not enough."""

from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.cuda.diagnostics import parse_diagnostics
from kernel_lsp.compiler.cuda.nvcc import compile_nvcc
from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.compiler.host.flags import translate
from kernel_lsp.compiler.machine_code.cubin import cubin_arch
from kernel_lsp.compiler.toolchain.target import is_modern, split_targets, target_of, wider_target
from kernel_lsp.compiler.toolchain.tools import tool
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.modules import device_units

FENCE = '__device__ __forceinline__ void fence() {\n    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n}\n'
KERNEL = "__global__ void hopper(float* out) {\n    fence();\n    out[threadIdx.x] = 2;\n}\n"
JOINED = FENCE.replace('"wgmma.', '"wg" "mma.')  # nothing in the text tells what it is
BOGUS = (
    "__device__ __forceinline__ unsigned lane() {\n    unsigned r;\n"
    '    asm volatile("mov.u32 %0, %%laneidx;" : "=r"(r));\n    return r;\n}\n'
    "__global__ void broken(unsigned* out) { out[0] = lane(); }\n"
)


@pytest.mark.parametrize(
    ("arch", "text", "options", "target"),
    [
        ("sm_90", FENCE, (), "sm_90a"),
        ("sm_100", 'asm("tcgen05.wait::ld.sync.aligned;");', (), "sm_100a"),
        ("sm_120", "#ifdef __CUDA_ARCH_FEAT_SM120_ALL", (), "sm_120a"),
        ("sm_90", 'asm("setmaxnreg.dec.sync.aligned.u32 40;");', (), "sm_90a"),
        ("sm_90", "cuda::ptx::tcgen05_alloc(x);", (), "sm_90a"),
        ("sm_80", FENCE, (), "sm_80"),
        ("sm_90", "// one day with wgmma\nint x;", (), "sm_90"),
        ("sm_90", "", ("-gencode=arch=compute_90a,code=sm_90a",), "sm_90a"),
        ("sm_90", "", ("-gencode=arch=compute_80,code=sm_80", "-arch=sm_90a"), "sm_90a"),
        ("sm_100", "", ("-gencode=arch=compute_100f,code=[sm_100f,sm_103]",), "sm_100f"),
        ("sm_90", "", ("-gencode=arch=compute_100a,code=sm_100a",), "sm_90"),
        ("sm_90a", "", (), "sm_90a"),
        ("sm_100f", "tcgen05", ("-arch=sm_100a",), "sm_100f"),
    ],
)
def test_the_target_is_what_code_or_options_ask_for(arch: str, text: str, options: Any, target: str) -> None:
    assert target_of(arch, (text,), options) == target


def test_options_that_name_targets_are_told_from_others_in_both_ways_of_writing_them() -> None:
    flags = ("-O3", "-gencode", "arch=compute_90a,code=sm_90a", "-arch=sm_90a", "-DN=4")
    assert split_targets(flags) == (("-O3", "-DN=4"), ("-gencode=arch=compute_90a,code=sm_90a", "-arch=sm_90a"))
    options = BuildOptions(flags)
    assert options.all_flags == ("-std=c++17", "-O3", "-DN=4")
    assert options.targets == split_targets(flags)[1]
    translated = translate((), flags)
    assert (translated.unknown, BuildOptions(translated.device).targets) == (None, options.targets)


@pytest.mark.parametrize("listed", ["'-gencode=%s'", "'-gencode', '%s'"])
def test_targets_are_read_from_a_call_that_is_not_run(listed: str) -> None:
    flags = listed % "arch=compute_90a,code=sm_90a"
    call = f'load_inline("m", "", "int x;", extra_cuda_cflags=[{flags}])'
    (unit,) = device_units(f"from torch.utils.cpp_extension import load_inline\n{call}")
    assert BuildOptions(unit.flags).targets == ("-gencode=arch=compute_90a,code=sm_90a",)


@pytest.mark.parametrize("text", [FENCE + KERNEL, JOINED + KERNEL], ids=["in the text", "as ptxas says"])
def test_code_with_hoppers_instructions_is_built_for_hopper(text: str, tmp_path: Path) -> None:
    build = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90")
    assert build.binary is not None, build.log
    assert (build.binary.arch, cubin_arch(build.binary.cubin)) == ("sm_90a", "sm_90")
    assert ".target sm_90a" in (build.binary.ptx or "")
    assert is_modern(build.binary.ptx)


def test_an_option_decides_for_code_that_does_not_say(tmp_path: Path) -> None:
    source = SourceFile(tmp_path / "k.cu", "__global__ void k(float* x) { x[0] = 1; }")
    build = build_cuda(source, "sm_90", options=BuildOptions(("-gencode", "arch=compute_90a,code=sm_90a")))
    assert build.binary is not None, build.log
    assert build.binary.arch == "sm_90a"
    assert not is_modern(build.binary.ptx)


def _by_nvcc(text: str, path: Path) -> Build:
    nvcc = tool("nvcc").path
    assert nvcc is not None
    return compile_nvcc(nvcc, text, path, "sm_90", way="nvcc")


@pytest.mark.parametrize(
    "compiled",
    [
        lambda text, path: compile_nvrtc(text, str(path), "sm_90"),
        pytest.param(_by_nvcc, marks=pytest.mark.skipif(not tool("nvcc").present, reason="needs nvcc")),
    ],
    ids=["nvrtc", "nvcc"],
)
def test_the_assemblers_own_words_stand_at_the_line_of_the_source(compiled: Any, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    build = compiled(BOGUS, path)
    assert build.binary is None
    found = {(d.path, d.line, d.message) for d in build.diagnostics if d.severity is Severity.ERROR}
    assert found == {
        (str(path), 3, "Arguments mismatch for instruction 'mov'"),
        (str(path), 3, "Unknown symbol '%laneidx'"),
    }


def test_what_blackwell_alone_has_is_one_error_at_its_first_line(tmp_path: Path) -> None:
    text = (
        '__global__ void k() {\n    asm volatile("tcgen05.fence::before_thread_sync;");\n'
        '    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");\n}\n'
    )
    build = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90")
    assert build.binary is None
    (error,) = (d for d in build.diagnostics if d.severity is Severity.ERROR)
    assert (error.line, "tcgen05.fence" in error.message, "'sm_90a'" in error.message) == (2, True, True)


def test_qualifiers_of_a_refused_instruction_are_not_refused_again() -> None:
    said = "ptxas x.ptx, line {}; error   : {} not supported on .target 'sm_100a'\n"
    log = said.format(1, "Feature '.x'") + said.format(2, "Feature '.y'") + said.format(2, "Instruction 'wgmma.y'")
    found = parse_diagnostics(log, "k.cu", ".x\nwgmma.y\n")
    assert [(one.line, one.message.split("'")[1]) for one in found] == [(1, ".x"), (2, "wgmma.y")]


def test_without_the_ptx_the_quoted_word_tells_the_line() -> None:
    log = "ptxas /tmp/x.ptx, line 29; error   : Unknown symbol '%laneidx'\n"
    (error,) = parse_diagnostics(log + "ptxas fatal   : Ptx assembly aborted due to errors\n", "k.cu", BOGUS)
    assert (error.path, error.line, error.message) == ("k.cu", 3, "Unknown symbol '%laneidx'")


def test_only_an_instruction_that_is_missing_makes_the_target_wider() -> None:
    said = "ptxas application ptx input, line 5; error   : Instruction 'x' not supported on .target 'sm_90'"
    assert wider_target("sm_90", said) == "sm_90a"
    assert wider_target("sm_90a", said) is None
    assert wider_target("sm_80", said) is None
    assert wider_target("sm_90", "ptxas x, line 5; error   : Unknown symbol 'y'") is None


def test_a_gpu_does_not_overrule_its_own_target() -> None:
    gpu = Gpu(0, "GPU-0", "H100", "sm_90", "580.0", 1 << 36)
    assert target_device(gpu, Settings(arch=["sm_80", "sm_90a"]).arch).arch == "sm_90a"
    assert target_device(gpu, Settings(arch=["sm_100a"]).arch).arch == "sm_90"
    assert target_device(gpu, Settings().arch).arch == "sm_90"
    assert target_device(None, Settings(arch=["sm_100a"]).arch).arch == "sm_100a"


def test_only_a_device_that_nobody_chose_is_assumed() -> None:
    gpu = Gpu(0, "GPU-0", "H100", "sm_90", "580.0", 1 << 36)
    assert target_device(None, ()).assumed
    assert not target_device(None, ("sm_90",)).assumed
    assert not target_device(gpu, ()).assumed
