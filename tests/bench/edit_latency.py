"""From an edit to its diagnostics and facts, through warm build workers: `python -m tests.bench.edit_latency`.

Each edit puts a new statement at the head of every kernel of an example, so that nothing of it was ever compiled
before. Prints the median and the worst of each example in milliseconds, and of the look-up of what has not changed; at
the end a median for each language of a file, `torch` being CUDA text in a Python file, whose kernels alone are built.
Options: --count EDITS (default 20), --arch, --only SUBSTRING of an example's path, --record.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.compiler.builds.answers import cached_build
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.facts import as_it_stands, facts_of
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"


def edited(source: SourceFile, number: int) -> SourceFile:
    """The file with a statement of its own at the head of each kernel, in the kernel's language, not the file's."""
    data = source.text.encode()
    for kernel in sorted(find_kernels(source.text, source.path), key=lambda kernel: -kernel.body.start):
        at = kernel.body.start
        if kernel.language is Language.CUDA:
            data = data[: at + 1] + f' asm volatile("// edit {number}");'.encode() + data[at + 1 :]
        else:
            line = data.rfind(b"\n", 0, at) + 1
            indent = data[line:at] if not data[line:at].strip() else b"    "
            data = data[:at] + f"edit = {number}\n".encode() + indent + data[at:]
    return SourceFile(source.path, data.decode())


async def measure(source: SourceFile, settings: Settings, pool: Pool, arch: str, count: int) -> dict[str, Any]:
    """Figures of one example."""
    workload, candidate = as_it_stands(source, None, settings)
    builders = Builders(pool, settings, device_named(arch))

    async def once(text: SourceFile) -> tuple[float, Built]:
        start = time.perf_counter()
        own = workload.source.path if workload and not workload.in_kernel_file else None
        found, version = as_it_stands(text, own, settings)
        built = await builders.build(found, version)
        facts = facts_of(arch, built)
        seconds = time.perf_counter() - start
        assert facts.ok, facts.diagnostics
        assert facts.kernels
        assert not built.build.cached
        return seconds, built

    await once(source)
    seconds: list[float] = []
    for number in range(count):
        await asyncio.sleep(0.05)  # an author types on while the next worker is made ready
        seconds.append((await once(edited(source, number)))[0])
    start = time.perf_counter()
    assert cached_build(settings, device_named(arch), workload, candidate) is not None
    return {
        "language": candidate.language.value,
        "median_ms": round(statistics.median(seconds) * 1e3, 1),
        "worst_ms": round(max(seconds) * 1e3, 1),
        "unchanged_ms": round((time.perf_counter() - start) * 1e3, 2),
    }


async def main() -> None:
    """Measure all examples and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", default="")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        settings = load_settings(None, overrides={"paths.cache": cache})[0]
        async with Pool() as pool:
            for source in find_kernel_files([EXAMPLES]):
                name = str(source.path.relative_to(EXAMPLES))
                if asked.only not in name:
                    continue
                found = figures[name] = await measure(source, settings, pool, asked.arch, asked.count)
                print(f"{name:34} {found['median_ms']:8.1f} {found['worst_ms']:8.1f} {found['unchanged_ms']:8.2f}")
    medians = {
        language: statistics.median(f["median_ms"] for f in figures.values() if f["language"] == language)
        for language in dict.fromkeys(f["language"] for f in figures.values())
    }
    print("median of the medians:", medians)
    if asked.record:
        record("edit_latency", {"arch": asked.arch, "edits": asked.count, "median_ms": medians, "examples": figures})


if __name__ == "__main__":
    asyncio.run(main())
