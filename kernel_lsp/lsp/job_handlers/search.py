"""Search for a faster variant of a kernel, or generate a kernel for a module."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.refine.kernel_generation import LANGUAGES
from kernel_lsp.refine.run import refine_target
from kernel_lsp.report.machine import refinement_json


async def refine(job: JobContext) -> dict[str, Any]:
    """Search; the result has `notes`, sentences on what was left out, and the candidates `tried`."""
    if job.label is not None and job.label not in LANGUAGES:
        job.wishes.append(job.label)
    job.doing("building and measuring the baseline")
    found = await refine_target(
        job.target(),
        job.settings,
        job.store,
        asyncio.Event(),
        pool=job.pool,
        on_progress=lambda progress: job.emit({"progress": asdict(progress)}),
        on_verdict=job.tell,
        on_confirmed=job.confirmed,
        wishes=job.wishes,
        gpus=job.settings.refine.gpus,
    )
    return {
        "reason": found.reason,
        "verdict": found.best.id if found.best else None,
        "notes": found.notes,
        "tried": json.loads(refinement_json(found, ""))["tried"],
    }


async def lower(job: JobContext) -> dict[str, Any]:
    """Generate a kernel for a module, in the language that `label` names."""
    settings = job.settings.refine.model_copy(update={"write": job.label})
    job.settings = job.settings.model_copy(update={"refine": settings})
    return await refine(job)
