"""Asks a worker for a verdict by KernelBench's published method (`runner.workers.published`)."""

from dataclasses import replace

from kernel_lsp.bench.records import Published
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.messages import encode
from kernel_lsp.runner.messages.published import JudgePublished, PublishedVerdict
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut
from kernel_lsp.source.candidate import Candidate

TRIALS, REPEATS = 5, 100
DEADLINE_SECONDS = 300.0
EMULATED_SECONDS = 60.0
_EXCESSIVE = 10.0


async def ask_published(
    pool: Pool, gpu: Gpu | None, target: Target, candidate: Candidate, built: Built, settings: Settings
) -> tuple[Published | None, str]:
    """Return the verdict, or None with the reason. A candidate that crashes or hangs its process is not correct.

    It uses the extensions that were built for our own verdict.

    Raises:
        RunnerError: no worker could be started.
    """
    if not built.ok:
        return _published(PublishedVerdict(compiled=False, detail=built.first_error)), ""
    triton = compiler_part(candidate.language).compiles_at_launch
    flavour, device = (Flavour.GPU, "cuda") if gpu else (Flavour.EMULATE, "cpu")
    worker = await pool.worker(
        flavour, "published", triton=triton, device=device, emulated=encode(target_device(gpu, settings.arch))
    )
    request = JudgePublished(
        problem=target.workload.source.text,
        candidate=replace(candidate.kernel, path=candidate.kernel.path.absolute()),
        extensions=built.extensions,
        triton=triton,
        trials=TRIALS,
        repeats=REPEATS if gpu else 0,
    )
    try:
        verdict = await worker.ask(request, deadline=DEADLINE_SECONDS if gpu else EMULATED_SECONDS)
    except (WorkerDied, WorkerTimedOut) as error:
        if gpu is None:
            return None, str(error)
        verdict = PublishedVerdict(compiled=True, detail=str(error), seconds=DEADLINE_SECONDS)
    except (WorkerFailure, KernelLspError) as error:
        return None, str(error)
    finally:
        worker.kill()
    return _published(verdict), ""


def _published(verdict: PublishedVerdict) -> Published:
    mean_ms, reference_ms = verdict.mean_ms, verdict.reference_ms
    return Published(
        compiled=verdict.compiled,
        correct=verdict.correct,
        trials=(verdict.passed, TRIALS),
        detail=verdict.detail,
        mean_ms=mean_ms,
        reference_ms=reference_ms,
        excessive=mean_ms is not None and reference_ms is not None and reference_ms > _EXCESSIVE * mean_ms,
        scaled=False,
        seconds=verdict.seconds,
    )
