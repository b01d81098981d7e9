"""Candidates that do harm, and good ones to judge between them: a CUDA and a Triton kernel, each with versions.

The code that harms from Python waits until it is in a process that runs versions, so that it gets past the build.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.judge.target import Target
from kernel_lsp.source.candidate import Candidate
from tests.bench import specimens

_CUDA = "cuda"
_TRITON = "triton"
LANGUAGES = (_CUDA, _TRITON)

_STORE = "y[at] = v / (1.0f + __expf(-v));"
_TRITON_STORE = "tl.store(y_ptr + offsets, x * 2, mask=mask)"
_TRITON_WAIT = """flag = tl.load(x_ptr, volatile=True)
    while flag != 12345.5:
        flag = tl.load(x_ptr, volatile=True)"""
_TRITON_TEXT = f"""import torch
import triton
import triton.language as tl

EXTRA = {{extra}}  # blocks done twice, per mille


@triton.jit
def twice(x_ptr, y_ptr, n, blocks, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    pid = tl.where(pid < blocks, pid, pid - blocks)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    {_TRITON_STORE}


CASES = [dict(n={{n}})]
CONTRACT = dict(contiguous=True, aligned=16, finite=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 1024)
    module.twice[(blocks + blocks * module.EXTRA // 1000,)](x, y, x.numel(), blocks, BLOCK=1024)
    return y
"""
_BASE = 400  # per mille done twice by the baselines; the gains leave all of it out, the losses double it


@dataclass(frozen=True, slots=True)
class Scale:
    """How large kernels and harm are: for a GPU of one's own, or for a test beside others.

    Attributes:
        elements: of the kernels' inputs.
        forks: a fork bomb makes 2 to the power of it processes.
        files: how many the one that fills the disk writes, `megabytes` each.
        megabytes: see `files`; the one that floods its output prints as much as one of them at each of `files` turns.
    """

    elements: int = 1 << 24
    forks: int = 8
    files: int = 8
    megabytes: int = 256


SMALL = Scale(1 << 12, 4, 2, 16)
"""For a machine without a GPU."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A version to be judged.

    Attributes:
        name: what it does.
        language: of its kernel.
        verdicts: which ones are right for it.
        text: the kernel file.
        launch: the workload file with another `launch`, for a CUDA kernel.
    """

    name: str
    language: str
    verdicts: frozenset[str]
    text: str
    launch: str | None = None

    @property
    def good(self) -> bool:
        """Whether it is a version that a person could have written in earnest."""
        return self.name in _GOOD

    def version(self, target: Target, number: int) -> Candidate:
        """It as a candidate that was never judged before."""
        comment = "//" if self.language == _CUDA else "#"
        return target.version(f"{self.text}\n{comment} {number}\n", self.name, "user", self.launch)


_GOOD = ("the same", "faster", "slower")
_EXTRA = {"the same": _BASE, "faster": 0, "slower": 2 * _BASE}
_VERDICTS = {
    "the same": {"SAME", "NOT_WORTH_IT", "AMBIGUOUS"},
    "faster": {"FASTER"},
    "slower": {"SLOWER"},
}
_STOPPED = {"RUN_FAILED", "TIMED_OUT"}
"""The emulator finds that a kernel never ends; a busy driver tells of a trap later than a run may take."""
_WRITING = {"fills the disk", "floods its output"}  # for longer than a run may take where the disk is slow
_HOST = {
    "takes more GPU memory than there is": 'torch.empty(1 << 46, dtype=torch.uint8, device="{device}")',
    "hoards all GPU memory": 'hoard = [torch.empty(8 << 30, dtype=torch.uint8, device="{device}") for _ in range(99)]',
    "forks without end": """me = os.getpid()
for _ in range({forks}):
    os.fork()
if os.getpid() != me:
    time.sleep(600)
raise RuntimeError("forked")""",
    "fills the disk": """for number in range({files}):
    with open(f"fill{{number}}", "wb") as file:
        file.write(bytes({megabytes} << 20))
raise RuntimeError("filled")""",
    "floods its output": """for _ in range({files}):
    os.write(1, b"flood " * (({megabytes} << 20) // 6))
raise RuntimeError("flooded")""",
    "ends its process": "os._exit(0)",
    "kills its process": "os.kill(os.getpid(), 9)",
    "exits with an answer": 'print("FASTER", flush=True)\nraise SystemExit(0)',
}
_DEVICE = {
    "hangs": (_CUDA, _STORE, f'while (n > 0) {{ asm volatile(""); }}\n        {_STORE}', _STOPPED),
    "traps": (_CUDA, _STORE, f'asm volatile("trap;");\n        {_STORE}', _STOPPED),
    "reads far away": (_CUDA, "= x[at];", "= x[(1ll << 40) + at];", {"RUN_FAILED"}),
    "writes far away": (_CUDA, "y[at] = v", "y[(1ll << 40) + at] = v", {"RUN_FAILED"}),
    "does not compile": (_CUDA, "= x[at];", "= z[at];", {"BUILD_FAILED"}),
    "hangs in Triton": (
        _TRITON,
        _TRITON_STORE,
        f"{_TRITON_WAIT}\n    {_TRITON_STORE}",
        _STOPPED,
    ),
    "writes far away in Triton": (_TRITON, "y_ptr + offsets", "y_ptr + (1 << 40) + offsets", {"RUN_FAILED"}),
}
_GPU_ONLY = frozenset({"hoards all GPU memory"})
_IN_A_SUBJECT = 'if "/subject-" in os.environ["HOME"]:'  # a worker's own folder; where it is built it does no harm
_COUNTS = {"the same": 25, "faster": 14, "slower": 13, "hangs": 8, "hangs in Triton": 2, "does not compile": 4}


def write(folder: Path, language: str, scale: Scale) -> Path:
    """Write the baseline of a language with its workload; the path of the kernel."""
    if language == _CUDA:
        return specimens.write(folder, "elementwise", scale.elements, _BASE)
    (folder / "twice.py").write_text(_TRITON_TEXT.format(extra=_BASE, n=scale.elements))
    return folder / "twice.py"


def mixture(scale: Scale, count: int | None = None, seed: int = 0, *, gpu: bool = True) -> list[Misfit]:
    """All kinds in an order by chance: 200, more than half of them good, or `count` with each kind at least once."""
    kinds = [misfit for misfit in _all_kinds(scale, "cuda" if gpu else "cpu") if gpu or misfit.name not in _GPU_ONLY]
    order = random.Random(seed)
    if count is None:
        mixed = [misfit for misfit in kinds for _ in range(_COUNTS.get(misfit.name, 4))]
        mixed += order.choices([misfit for misfit in kinds if not misfit.good], k=200 - len(mixed))
    else:
        mixed = kinds + order.choices([misfit for misfit in kinds if misfit.good], k=max(0, count - len(kinds)))
    order.shuffle(mixed)
    return mixed


def _all_kinds(scale: Scale, device: str) -> Iterable[Misfit]:
    sizes = {"device": device, "forks": scale.forks, "files": scale.files, "megabytes": scale.megabytes}
    for language in LANGUAGES:
        for name in _GOOD:
            yield Misfit(name, language, frozenset(_VERDICTS[name]), _text(language, _EXTRA[name], scale))
        for name, harm in _HOST.items():
            yield _harming(name, language, harm.format(**sizes), scale)
    for name, (language, old, new, verdicts) in _DEVICE.items():
        text = _text(language, _BASE, scale)
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the {language} kernel"
        yield Misfit(name, language, frozenset(verdicts), text.replace(old, new))


def _text(language: str, extra: int, scale: Scale) -> str:
    if language == _CUDA:
        return specimens.text("elementwise", extra)
    return _TRITON_TEXT.format(extra=extra, n=scale.elements)


def _harming(name: str, language: str, harm: str, scale: Scale) -> Misfit:
    """A version whose Python harms: when its launch is called, or for Triton when it is imported."""
    text = _text(language, _BASE, scale)
    outcome = frozenset(_STOPPED if name in _WRITING else {"RUN_FAILED"})
    if language == _TRITON:
        return Misfit(name, language, outcome, f"import os, sys, time\n{text}\n\n{_guarded(harm, '')}\n")
    workload = specimens.workload("elementwise", scale.elements)
    body = "def launch(module, x):\n"
    return Misfit(
        name, language, outcome, text, f"import os, sys, time\n{workload.replace(body, body + _guarded(harm, '    '))}"
    )


def _guarded(harm: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in [_IN_A_SUBJECT, *(f"    {line}" for line in harm.splitlines())])
