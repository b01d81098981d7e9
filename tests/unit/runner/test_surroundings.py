"""A version that changes what others use, or leaves threads behind, is seen; one that only computes is not."""

import pytest
from runner_support import SECONDS, run_on_nothing

from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages.subject import LookForChanges
from kernel_lsp.runner.messages.subject_answers import ProcessChanges

PLAIN = "import torch\ndef launch(module):\n    return torch.ones(3)\n"
CHANGES = {
    "torch.backends.cuda.matmul.allow_tf32 = True": "torch.backends.cuda.matmul.allow_tf32",
    "torch.backends.cudnn.benchmark = True": "torch.backends.cudnn.benchmark",
    "torch.set_default_dtype(torch.float64)": "torch's default type",
    "torch.use_deterministic_algorithms(True)": "torch's demand for deterministic algorithms",
    "torch.manual_seed(3)": "torch's random numbers",
    "torch.rand(3)": "torch's random numbers",
    "torch.cuda.streams.Stream.synchronize = lambda *a: None": "torch.cuda.Stream.synchronize",
    "torch.cuda.streams.Event.elapsed_time = lambda *a: 0.0": "torch.cuda.Event.elapsed_time",
    "torch.Tensor.copy_ = lambda self, other: self": "torch.Tensor.copy_",
    "torch.stack = torch.cat": "torch.stack",
    "import time; time.perf_counter = lambda: 0.0": "time.perf_counter",
    "torch.profiler.profile.export_chrome_trace = lambda *a: None": "torch.profiler.profile.export_chrome_trace",
    "from kernel_lsp.runner.workers.subject import SubjectWorker as s; s.call_repeatedly = print": (
        "kernel_lsp.runner.workers.subject.SubjectWorker.call_repeatedly"
    ),
    "import kernel_lsp.policy as p; p.FLUSH_L2_FACTOR = 0": "kernel_lsp.policy.FLUSH_L2_FACTOR",
    "import torch.utils._device as d; d.DeviceContext('cpu').__enter__()": "modes",
}


async def changes_of(subject, text: str) -> ProcessChanges:
    worker = await subject(text)
    await run_on_nothing(worker)
    return await worker.ask(LookForChanges(), deadline=SECONDS)


def test_a_version_that_only_computes_changes_nothing(subject, run) -> None:
    assert run(changes_of(subject, PLAIN)) == ProcessChanges((), ())


def test_importing_more_of_torch_changes_nothing(subject, run) -> None:
    text = f"import torch._dynamo, torch._inductor, triton\n{PLAIN}"
    assert run(changes_of(subject, text)).changed == ()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("statement", CHANGES)
@pytest.mark.parametrize("where", ["at import", "in launch"])
def test_what_is_changed_is_named(subject, run, statement: str, where: str) -> None:
    if where == "at import":
        text = f"import torch\n{statement}\n{PLAIN}"
    else:
        text = f"import torch\ndef launch(module):\n    y = torch.ones(3)\n    {statement}\n    return y\n"
    assert any(name.startswith(CHANGES[statement]) for name in run(changes_of(subject, text)).changed)


def test_a_thread_that_still_runs_is_named(subject, run) -> None:
    start = "threading.Thread(target=time.sleep, args=(30,), name='later', daemon=True).start()"
    text = f"import threading, time, torch\ndef launch(module):\n    {start}\n    return torch.ones(3)\n"
    assert run(changes_of(subject, text)).threads == ("later",)


def test_a_thread_that_has_ended_is_none(subject, run) -> None:
    body = "t = threading.Thread(target=int)\n    t.start()\n    t.join()"
    text = f"import threading, torch\ndef launch(module):\n    {body}\n    return torch.ones(3)\n"
    assert run(changes_of(subject, text)).threads == ()


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("torch.ones(3, dtype=torch.complex64).conj()", "computes when it is read"),
        ("torch._neg_view(torch.ones(3))", "computes when it is read"),
        ("torch.ones(3).to_sparse()", "is stored as torch.sparse_coo"),
        ("marked(torch.ones(3))", "carries attributes of its own"),
    ],
)
def test_an_output_whose_bytes_are_not_its_values_is_refused(subject, run, returned: str, why: str) -> None:
    helper = "def marked(t):\n    t.copy_ = lambda other: t\n    return t\n"
    text = f"import torch\n{helper}def launch(module):\n    return {returned}\n"
    with pytest.raises(WorkloadError, match=why):
        run(changes_of(subject, text))
