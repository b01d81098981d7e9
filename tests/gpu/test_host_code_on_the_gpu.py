"""Extensions on the fast path give on a GPU what torch gives, on any stream and in a CUDA graph."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.errors import KernelLspError
from kernel_lsp.runner.workers.inline import build_extension, recording, serving
from kernel_lsp.source.candidate import SourceFile
from tests.unit.compiler.host_wrappers import WRAPPERS, Wrapper

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


def on_the_gpu(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(on_the_gpu(one) for one in value)
    return value.cuda() if isinstance(value, torch.Tensor) else value


def built(wrapper: Wrapper, kept: Path) -> tuple[dict[str, Any], ExtensionBuild]:
    call: dict[str, Any] = {"cpp_sources": wrapper.cpp, "functions": wrapper.functions}
    call |= {"cuda_sources": wrapper.cuda, "extra_cuda_cflags": list(wrapper.flags)} if wrapper.cuda else {}
    with recording() as asked:
        cpp_extension.load_inline("kernels", **call)
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    made = build_extension(asked[0], arch, SourceFile(Path("answer.py"), ""), kept, 1 << 30)
    assert isinstance(made, ExtensionBuild), made
    return call, made


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda wrapper: wrapper.name)
def test_an_extension_gives_what_torch_gives(
    wrapper: Wrapper, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

    monkeypatch.chdir(tmp_path)
    heard: list[str] = []
    call, made = built(wrapper, kept)
    inputs = on_the_gpu(list(wrapper.inputs()))
    with serving([made], GpuLaunches([lambda image, entry, *_: heard.append(entry)])), torch.no_grad():
        module = cpp_extension.load_inline("kernels", **call)
        if wrapper.raises is not None:
            with pytest.raises((*wrapper.raises[:1], KernelLspError), match=wrapper.raises[1]):
                wrapper.call(module, *inputs)
            return
        given = wrapper.call(module, *inputs)
    expected = on_the_gpu(wrapper.reference(*(x.cpu() if isinstance(x, torch.Tensor) else x for x in inputs)))
    torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-3)
    assert bool(heard) == bool(wrapper.cuda)


def test_what_names_no_stream_is_captured_with_torchs_own_work(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

    monkeypatch.chdir(tmp_path)
    call, made = built(WRAPPERS[0], kept)
    a, b = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    with serving([made], GpuLaunches()), torch.no_grad():
        module = cpp_extension.load_inline("kernels", **call)
        module.add(a, b)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sum_ = module.add(a, b).mul(2)
        a.fill_(3)
        b.fill_(4)
        graph.replay()
        torch.cuda.synchronize()
    assert bool((sum_ == 14).all())
