"""Look for mechanical fixes of what a check found, and check each; the result has the `fixes` that hold."""

from dataclasses import asdict
from typing import Any

from kernel_lsp.check import Checker
from kernel_lsp.check.quick_fixes import judged
from kernel_lsp.lsp.job_handlers.context import JobContext


async def fix(job: JobContext) -> dict[str, Any]:
    """Check the text, which the store remembers, then each fix of its errors."""
    job.doing("checking fixes")
    async with Checker(job.settings, job.store, texts=job.texts) as checker:
        found = await judged(checker, job.source, await checker.check(job.source))
    count = len(found)
    return {
        "reason": f"{count} fix{'' if count == 1 else 'es'} found",
        "verdict": None,
        "fixes": [asdict(one) for one in found],
    }
