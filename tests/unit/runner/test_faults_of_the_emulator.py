"""Whatever the emulator lacks or gets wrong is said to need a GPU and never counts against a kernel."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.compiler.cuda.build import build_cuda  # noqa: E402
from kernel_lsp.compiler.fakes.gpu import fake_gpu  # noqa: E402
from kernel_lsp.compiler.fakes.shortfall import shortfall  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.emulate import decode, machine, transfers  # noqa: E402
from kernel_lsp.emulate.resident import Resident  # noqa: E402
from kernel_lsp.errors import CannotJudgeError, WorkloadError  # noqa: E402
from kernel_lsp.runner.workers import emulated_launch  # noqa: E402
from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator  # noqa: E402
from kernel_lsp.source.candidate import SourceFile  # noqa: E402

PATH = Path("/home/me/kernel.cu")
SCALE = """extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= 2.5f;
}
"""


@pytest.fixture(scope="module")
def binary():
    built = build_cuda(SourceFile(PATH, SCALE), "sm_80")
    assert built.binary is not None, built.log
    return built.binary


@pytest.fixture
def emulator(monkeypatch):
    """An emulator that has read and decoded nothing yet."""
    monkeypatch.setattr(machine, "_decoded", {})
    emulated_launch.read_program.cache_clear()
    emulated_launch.load.cache_clear()
    emulator = Emulator(device_named("sm_80"))
    emulator.expect(PATH, triton=False)
    return emulator


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


def scale(emulator, binary):
    x = torch.ones(8)
    emulator.begin(["x"], [x])
    emulator.module(binary, {}, {}).scale[1, 32](x, 8)
    return emulator.report()


ERRORS = [IndexError("list index out of range"), KeyError("f"), AssertionError(), NotImplementedError(), MemoryError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_while_an_instruction_is_executed_names_it_and_its_line(emulator, binary, monkeypatch, error):
    monkeypatch.setattr(transfers.spaces, "store", failing(error))
    with pytest.raises(CannotJudgeError, match=rf"itself failed at `st.global\S*` \({type(error).__name__}") as caught:
        scale(emulator, binary)
    assert (caught.value.path, caught.value.line) == (PATH, 4)


def test_an_error_while_an_instruction_is_decoded_names_it_too(emulator, binary, monkeypatch):
    monkeypatch.setattr(decode.arithmetic, "bind", failing(IndexError("tuple index out of range")))
    with pytest.raises(CannotJudgeError, match="itself failed at `"):
        scale(emulator, binary)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Resident, "__init__"),
        (machine, "_layout"),
        (machine, "summed"),
        (emulated_launch, "load"),
        (emulated_launch.Emulated, "parameter_block"),
    ],
)
def test_an_error_before_or_after_is_the_emulators_too(emulator, binary, monkeypatch, where, name):
    monkeypatch.setattr(where, name, failing(IndexError("planted")))
    with pytest.raises(CannotJudgeError, match=r"the emulator itself failed \(IndexError: planted\)"):
        scale(emulator, binary)


def test_text_that_the_emulator_cannot_read_says_nothing_of_the_kernel(emulator, binary, monkeypatch):
    text = binary.ptx.replace("ret;", "mov.b32 %r1, (;")
    launch = emulated_launch.Emulated(text, "scale", "scale", None, (), ())
    with pytest.raises(CannotJudgeError, match="PTX"):
        emulator.run(launch)


def test_it_is_remembered_where_the_users_code_falls_back(emulator, binary, monkeypatch):
    monkeypatch.setattr(transfers.spaces, "store", failing(IndexError()))
    x = torch.ones(8)
    emulator.begin(["x"], [x])
    try:
        emulator.module(binary, {}, {}).scale[1, 32](x, 8)
    except Exception:
        x *= 2.5
    with pytest.raises(CannotJudgeError, match="itself failed"):
        emulator.end()
    emulator.begin(["x"], [x])
    assert emulator.end()["findings"] == ()


def test_a_launch_that_no_gpu_would_make_is_the_users(emulator, binary):
    x = torch.ones(8)
    emulator.begin(["x"], [x])
    with pytest.raises(WorkloadError, match=r"launching `scale`: .* block \(2048, 1, 1\)"):
        emulator.module(binary, {}, {}).scale[1, 2048](x, 8)
    with pytest.raises(ValueError, match="invalid literal"):
        emulator.module(binary, {}, {}).scale["many", 32](x, 8)


def raised_by(call):
    try:
        with fake_gpu(device_named("sm_80"), values=True), torch.no_grad():
            call()
    except Exception as error:
        return error
    raise AssertionError("it should have raised")


def test_an_error_in_the_glue_of_a_host_library_is_the_emulators(monkeypatch):
    emulator = Emulator(device_named("sm_80"))
    monkeypatch.delattr(emulator, "memory")
    launches = EmulatedLaunches(emulator)
    why = shortfall(raised_by(lambda: launches.pointer(torch.ones(3))))
    assert why is not None
    assert why.message.startswith("the emulator itself failed (AttributeError:")


def by_hand():
    raise NotImplementedError("no such mode")


@pytest.mark.parametrize(
    "call",
    [
        by_hand,
        lambda: [][1],
        lambda: torch.ones(3) @ torch.ones(4),
        lambda: torch.ones(3, device="cuda").no_such_method(),
        lambda: torch.cuda.no_such_function(),
        lambda: torch.ones(3)[5],
    ],
)
def test_errors_of_the_users_own(call):
    assert shortfall(raised_by(call)) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.cuda.get_device_properties(0).uuid, "`uuid` of `torch.cuda`'s Properties"),
        pytest.param(
            lambda: torch.cuda.get_sync_debug_mode(),
            "a function of",
            marks=pytest.mark.skipif(torch.backends.cuda.is_built(), reason="a torch for CUDA has that function"),
        ),
        (lambda: torch.cuda.current_stream().priority_of_mine, "`priority_of_mine` of `torch.cuda`'s Stream"),
        (lambda: torch.ones(3, 3, dtype=torch.float8_e4m3fn, device="cuda") + 1, "torch's that the CPU does not have"),
    ],
)
def test_what_the_fake_gpu_lacks(call, words):
    why = shortfall(raised_by(call))
    assert why is not None
    assert words in why.message
