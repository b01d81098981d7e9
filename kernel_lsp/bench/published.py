"""A verdict by KernelBench's published method, asked of a worker: `runner.workers.published` says what it is."""

from dataclasses import asdict

from kernel_lsp.bench.records import Published
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.building import Built, arch_of
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Language

TRIALS, REPEATS = 5, 100
DEADLINE_SECONDS = 300.0
EMULATED_SECONDS = 60.0


async def ask_published(
    pool: Pool, gpu: Gpu | None, target: Target, candidate: Candidate, built: Built, settings: Settings
) -> tuple[Published | None, str]:
    """The verdict, or None and why there is none. A candidate that crashes or hangs its process is not correct.

    Its extensions are those that were built for our own verdict.

    Raises:
        RunnerError: no worker could be started.
    """
    if not built.ok:
        return _not_correct(built.first_error, compiled=False), ""
    worker = await pool.worker(
        Flavour.GPU if gpu else Flavour.EMULATE,
        "published",
        triton=candidate.language is Language.TRITON,
        device="cuda" if gpu else "cpu",
        arch=arch_of(gpu, settings),
    )
    try:
        answer = await worker.call(
            "judge",
            deadline=DEADLINE_SECONDS if gpu else EMULATED_SECONDS,
            problem=target.workload.source.text,
            candidate=candidate.kernel.text,
            path=str(candidate.kernel.path.absolute()),
            triton=candidate.language is Language.TRITON,
            extensions=[asdict(extension) for extension in built.extensions],
            trials=TRIALS,
            repeats=REPEATS if gpu else 0,
        )
    except (WorkerDied, WorkerTimedOut) as error:
        return (_not_correct(str(error)), "") if gpu else (None, str(error))
    except (WorkerFailure, KernelLspError) as error:
        return None, str(error)
    finally:
        worker.kill()
    return Published.model_validate(answer), ""


def _not_correct(detail: str, *, compiled: bool = True) -> Published:
    return Published(
        compiled=compiled,
        correct=False,
        trials=(0, TRIALS),
        detail=detail,
        mean_ms=None,
        reference_ms=None,
        excessive=False,
        scaled=False,
        seconds=DEADLINE_SECONDS if compiled else 0.0,
    )
