"""Run one job, in a process of its own; `catalog.JOBS` names the function for each kind.

Parameters: `work`, `path`, `kernel` (or null), `label` (or null), `texts` (open files as they are in the editor, by
path) and `settings` (the tree as JSON). Events: `{"doing": text}`, with the `share` of the work that is done where it
is known, `{"progress": refine.progress.SearchProgress}`, `{"verdict": judge.verdict.Verdict}`, sent when it has been
stored, `{"confirmed": Verdict}` before the final checks of a gain, and `{"notice": text}`.

The handler returns a dict: `reason`, how the job ended, one sentence for the user; `verdict`, the id of the verdict
that this rests on, or None; `notes`, if any, further sentences for the user; and what else its kind of job has found.

Before a job is known the process may be asked to `prepare`, the only parameter then: its workers begin to import.
During a search it may be given a `wish`, a sentence of the user's in `text`, for a model's further prompts.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.session import pool_on
from kernel_lsp.lsp.catalog import JOBS
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.store.store import open_store


@asynccontextmanager
async def opened() -> AsyncGenerator[Handler]:
    """Yield the handler; each job has a process of its own, with workers that end with the job."""
    async with AsyncExitStack() as stack:
        pool: Pool | None = None
        wishes: list[str] = []

        async def handle(params: dict[str, Any], emit: Emit) -> Any:
            nonlocal pool
            if params["work"] == "wish":
                wishes.append(params["text"])
                return None
            with _said_what_cannot_be_written():
                settings = Settings.model_validate(params["settings"])
                gpu = choose_gpu(settings.gpu)
                if pool is None or pool.gpu != (gpu.uuid if gpu else None):  # settings may have changed
                    pool = await stack.enter_async_context(pool_on(gpu, settings))
                if params["work"] == "prepare":
                    pool.preload(Flavour.BUILD, Flavour.GPU if pool.gpu else Flavour.EMULATE)
                    return None
                try:
                    return await _run(params, settings, emit, pool, wishes)
                finally:
                    await pool.close()

        yield handle


async def _run(params: dict[str, Any], settings: Settings, emit: Emit, pool: Pool, wishes: list[str]) -> Any:
    handle: Callable[[JobContext], Awaitable[Any]] = resolve_name(JOBS[params["work"]].handler)
    with open_store(settings.paths.data) as store:
        try:
            return await handle(JobContext(params, settings, emit, store, pool, wishes))
        finally:
            for notice in store.notices:
                emit({"notice": notice})


@contextmanager
def _said_what_cannot_be_written() -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else None
        fix = "Make room there, or name other folders with `paths.cache` and `paths.data`."
        raise RunnerError(f"This cannot be written: {error.strerror or error}.", where, fix=fix) from error
