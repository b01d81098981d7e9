"""Stand-ins for what a judgement works on, for tests that need no GPU and no worker."""

import contextlib
import itertools
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.tensors import Argument
from kernel_lsp.judge.context import Context, MeasuredBaseline, SessionContext
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.cost import LaunchTime
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import make_target
from kernel_lsp.runner.messages.oracle_answers import LoadedWorkload
from kernel_lsp.runner.turns import SessionTurns

SAXPY = Path(__file__).parents[3] / "examples" / "cuda" / "saxpy.cu"
CASES = ("n=1", "n=2", "n=3", "n=4")
SCATTER = (0.3, -0.3, -1.2, 1.2, 0.7, -0.7, -0.1, 0.1)


def draw(case: int = 0, nbytes: int = 0, arguments: tuple[Argument, ...] = ()) -> Draw:
    """Plain inputs of a case."""
    return Draw(f"{case}/normal/0", case, "normal", arguments, nbytes, nbytes)


def timed(
    mode: Literal["cold", "short"] = "cold",
    *,
    case: int = 0,
    launches: int = 4,
    us: float = 100.0,
    nbytes: int = 0,
    output_bytes: int = 1 << 20,
) -> TimedCase:
    """A case of the baseline's that takes `us` microseconds."""
    return TimedCase(draw(case, nbytes), mode, launches, us, output_bytes)


def scattered(mean: float, scatter: float, count: int) -> list[float]:
    """Values that scatter about the mean in a fixed order."""
    return [mean + each * scatter for each in itertools.islice(itertools.cycle(SCATTER), count)]


def at_once(work: Coroutine[object, None, None]) -> None:
    """Does what would be done later, for work that waits for nothing."""
    with contextlib.suppress(StopIteration):
        work.send(None)


def fake_harness(**attributes: object) -> Harness:
    """A harness that has these attributes only, and names for cases."""
    known: dict[str, object] = {"cases": CASES, "large": False, "gpu": None, "bandwidth": None}
    known |= {"leave_behind": at_once, "refill": lambda: None, "turns": SessionTurns(None)}
    known |= {"warm_workers": SimpleNamespace(stop=lambda: None)}
    known |= {"workload": LoadedWorkload(CASES, (), (0,)), "launch_time": LaunchTime()}
    known["target"] = SimpleNamespace(workload=SimpleNamespace(captured=False))
    return cast(Harness, SimpleNamespace(**known | attributes))


def fake_subject(worker: object = None, name: str = "1") -> Subject:
    """A version in a process that is stood in for."""
    version: Any = SimpleNamespace(kernel=None, launch=None)
    return Subject(name, version, cast(Any, None), cast(Any, worker))


def fake_context(
    harness: Harness, cases: Sequence[TimedCase] = (), timer: object = None, looks: object = None
) -> Context:
    """One judgement of an example's baseline, which is loaded already."""
    target = make_target(SAXPY)
    measured = MeasuredBaseline(
        harness, fake_subject(name="A"), BaselineProfile(), tuple(cases), looks=cast(Any, looks)
    )
    made = (target, Settings(), None, cast(Any, None), cast(Any, None), measured, "", cast(Any, timer), frozenset[int])
    context = Context(SessionContext(*made), target.baseline)
    context.subject, context.cases = fake_subject(name="B"), tuple(cases)
    return context


class Clock:
    """Time of this process as a test makes it pass, in the place of the module `time`."""

    def __init__(self) -> None:
        self.s = 0.0

    def perf_counter(self) -> float:
        return self.s
