"""Options of an extension's build: those that tune it are known, those that could bring or hide code are named."""

import pytest

from kernel_lsp.compiler.host.options import definitions, unusual_options
from kernel_lsp.compiler.host.request import inline_request

TUNING = {
    "extra_cflags": [
        "-O3 -march=native",
        "-std=c++17",
        "-DTILE=16",
        "-D",
        "NAME=1",
        "-Wno-unused",
        "-fPIC",
        "-fopenmp",
        "-g",
        "-I/usr/include",
    ],
    "extra_cuda_cflags": [
        "-O3",
        "--use_fast_math",
        "-lineinfo",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_80,code=sm_80",
        "-Xptxas",
        "-v,-O3,-dlcm=ca",
        "-Xcompiler",
        "-fPIC,-O2",
        "--compiler-options=-O2",
        "-U__CUDA_NO_HALF_OPERATORS__",
        "--expt-relaxed-constexpr",
        "-Xfatbin",
        "-compress-all",
        "--ptxas-options=-v",
        "-maxrregcount=64",
        "-t",
        "4",
    ],
    "extra_ldflags": [
        "-lcuda",
        "-lcublasLt",
        "-L/usr/local/cuda/lib64",
        "-lm",
        "-Wl,-rpath,$ORIGIN",
        "/usr/local/cuda/lib64/libcudart.so.12",
    ],
}


def test_options_that_tune_a_build_are_known() -> None:
    assert unusual_options(inline_request("m", "", "", functions=[], **TUNING)) == ()


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("extra_cflags", ["-fplugin=x.so"]),
        ("extra_cflags", ["-fplu" + "gin-arg-x-y=z"]),
        ("extra_cflags", ["-wrapper", "sh,-c"]),
        ("extra_cflags", ["-B/tmp"]),
        ("extra_cflags", ["-specs=x"]),
        ("extra_cflags", ["@options"]),
        ("extra_cflags", ["-include", "/proc/self/maps"]),
        ("extra_cflags", ["-Wa,--defsym,x=1"]),
        ("extra_cflags", ["-finput-charset=UTF-7"]),
        ("extra_cflags", ["-trigraphs"]),
        ("extra_cflags", ["-O3; touch x"]),
        ("extra_cflags", ["-DX=`id`"]),
        ("extra_cflags", ["-DF(x)=x"]),
        ("extra_cuda_cflags", ["-ccbin", "/bin/sh"]),
        ("extra_cuda_cflags", ["-Xcompiler", "-O2,-fplugin=x.so"]),
        ("extra_cuda_cflags", ["--compiler-options=-fplugin=x.so"]),
        ("extra_cuda_cflags", ["-Xlinker", "-z,execstack"]),
        ("extra_cuda_cflags", ["--options-file", "x"]),
        ("extra_cuda_cflags", ["--pre-include=x.h"]),
        ("extra_ldflags", ["-l:libc.a"]),
        ("extra_ldflags", ["-lglib-2.0"]),
        ("extra_ldflags", ["-lcudart_static"]),
        ("extra_ldflags", ["/usr/lib/libc.a"]),
        ("extra_ldflags", ["other.o"]),
        ("extra_ldflags", ["-static"]),
        ("extra_ldflags", ["-s"]),
        ("extra_ldflags", ["-Wl,--wrap=printf"]),
        ("extra_ldflags", ["-Wl,-z,noseparate-code"]),
        ("extra_ldflags", ["-Wl,-z,execstack"]),
        ("extra_ldflags", ["-fuse-ld=gold"]),
        ("extra_include_paths", ["/usr/include; touch x"]),
    ],
)
def test_options_that_could_bring_or_hide_code_are_named(where: str, options: list[str]) -> None:
    given = TUNING | {where: [*TUNING.get(where, []), *options]}
    found = unusual_options(inline_request("m", "", "", functions=[], **given))
    assert found
    assert all(one in " ".join(options) for one in found)


def test_macros_of_options_are_lines_of_the_text() -> None:
    request = inline_request("m", "", "", functions=[], extra_cflags=["-DA -DB=2"], extra_cuda_cflags=["-D", "C=x.y"])
    assert definitions(request) == "#define A \n#define B 2\n#define C x.y\n"
