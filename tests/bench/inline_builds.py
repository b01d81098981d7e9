"""What building a `load_inline` extension costs, and whether both ways agree: `python -m tests.bench.inline_builds`.

The extensions are those of the tests (`tests/unit/compiler/host_wrappers.py`). Each is built on the fast path: cold,
after an edit of device code (the host part is found built), and unchanged. The compiled thin header is there already,
for it is made once for a machine. With --full, where there are nvcc, a torch with CUDA and a GPU, each is also built
as torch does, and both are run on the GPU on the same inputs: results, and the errors of those that must fail, have to
agree.

Options: --only TEXT for extensions whose name holds it, --full, --record.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.runner.workers.inline import build_extension, build_fully, load_extension, recording
from kernel_lsp.source.candidate import SourceFile
from tests.bench.record import record
from tests.unit.compiler.host_wrappers import WRAPPERS, Wrapper

ORIGIN = SourceFile(Path("answer.py").absolute(), "")
LIMIT = 1 << 30


@dataclass(frozen=True)
class Row:
    """Seconds for one extension; `agrees` is None where the full path was not run."""

    name: str
    path: str
    cold: float
    host_cached: float
    cached: float
    full: float | None = None
    agrees: bool | str | None = None


def request_of(wrapper: Wrapper, edit: str = "") -> ExtensionRequest:
    """What the extension asks for, its device code changed by `edit`."""
    cuda = {"cuda_sources": wrapper.cuda + edit} if wrapper.cuda else {}
    with recording() as asked:
        cpp_extension.load_inline(
            "kernels",
            wrapper.cpp,
            functions=wrapper.functions,
            extra_cuda_cflags=list(wrapper.flags),
            **cuda,
        )
    return asked[0]


def timed(request: ExtensionRequest, arch: str, cache: Path) -> tuple[float, ExtensionBuild | str]:
    """Wall seconds of a build on the fast path, and what came of it."""
    start = time.perf_counter()
    made = build_extension(request, arch, ORIGIN, cache, LIMIT)
    return time.perf_counter() - start, made


def outcome(wrapper: Wrapper, module: Any, inputs: list[Any]) -> tuple[Any, str]:
    """What a call returns, or the kind of its exception."""
    try:
        given = wrapper.call(module, *inputs)
        torch.cuda.synchronize()
    except Exception as error:
        return None, type(error).__name__
    return given, ""


def agreement(wrapper: Wrapper, fast: ExtensionBuild, full: ExtensionBuild) -> bool | str:
    """Whether both builds do the same on the GPU; a sentence where they do not."""
    from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

    torch.manual_seed(0)
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in wrapper.inputs()]
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    modules = load_extension(fast, GpuLaunches()), load_extension(full, GpuLaunches())
    ours, our_error = outcome(wrapper, modules[0], inputs)
    theirs, their_error = outcome(wrapper, modules[1], copies)
    # A launch that CUDA refuses is an exception at once with us; there it is an error code that nobody may look at.
    if wrapper.raises is not None and wrapper.raises[0] is Exception:
        return our_error != ""
    if our_error != their_error:
        return f"{our_error or 'a result'} beside {their_error or 'a result'}"
    try:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    except AssertionError as error:
        return str(error).splitlines()[0]
    return True


def measure(wrapper: Wrapper, arch: str, header: Path, folder: Path | None) -> Row:
    """Build one extension in all ways; `header` holds the compiled thin header, `folder` is for full builds."""
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        for made in header.glob("header-*"):
            (cache / made.name).symlink_to(made)
        cold, built = timed(request_of(wrapper), arch, cache)
        edit = "\n__device__ float edited(float x) { return x; }\n" if wrapper.cuda else ""
        host_cached, edited = timed(request_of(wrapper, edit), arch, cache)
        cached, _ = timed(request_of(wrapper), arch, cache)
        if isinstance(built, str) or isinstance(edited, str):
            return Row(wrapper.name, f"full: {built}", cold, host_cached, cached)
        assert edited.host.cached_host
        if folder is None:
            return Row(wrapper.name, "fast", cold, host_cached, cached)
        start = time.perf_counter()
        full = build_fully(request_of(wrapper), arch, ORIGIN, folder, "to compare")
        seconds = time.perf_counter() - start
        said = (
            agreement(wrapper, built, full) if full.ok else f"the full build fails: {full.build.diagnostics[0].message}"
        )
        return Row(wrapper.name, "fast", cold, host_cached, cached, seconds, said)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    arch = "sm_90"
    if given.full:
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with tempfile.TemporaryDirectory() as name, chdir(name):
        header = Path(name) / "header"
        start = time.perf_counter()
        build_extension(request_of(WRAPPERS[0]), arch, ORIGIN, header, LIMIT)
        first = time.perf_counter() - start
        rows: list[Row] = []
        for wrapper in (wrapper for wrapper in WRAPPERS if given.only in wrapper.name):
            rows.append(measure(wrapper, arch, header, Path(name) / "full" if given.full else None))
            full = "" if rows[-1].full is None else f" full {rows[-1].full:6.2f} {rows[-1].agrees}"
            times = f"cold {rows[-1].cold:5.2f}  device edit {rows[-1].host_cached:5.2f}  cached {rows[-1].cached:6.3f}"
            print(f"{times}{full}  {rows[-1].path}  {rows[-1].name}", flush=True)
    figures = {
        "extensions": len(rows),
        "on_the_fast_path": sum(row.path == "fast" for row in rows),
        "first_build_s": round(first, 2),
        "cold_median_s": round(statistics.median(row.cold for row in rows), 3),
        "cold_slowest_s": round(max(row.cold for row in rows), 3),
        "device_edit_median_s": round(statistics.median(row.host_cached for row in rows), 3),
        "unchanged_median_s": round(statistics.median(row.cached for row in rows), 4),
    }
    if given.full:
        figures["full_median_s"] = round(statistics.median(row.full or 0 for row in rows), 2)
        figures["agree"] = sum(row.agrees is True for row in rows)
        figures["differ"] = {row.name: row.agrees for row in rows if row.agrees is not True}
    print(figures)
    if given.record:
        record("inline_builds", figures)


if __name__ == "__main__":
    main()
