"""What a check of one kernel file rests on: the texts it reads, and everything else that could change its outcome."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernel_lsp
from kernel_lsp.build.headers import user_headers
from kernel_lsp.build.toolchain import package_versions
from kernel_lsp.build.toolkit import find_tool
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.imports import local_modules
from kernel_lsp.workload.spec import WorkloadFile

_PROGRAMS = ("nvcc", "ptxas", "nvdisasm")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The texts that a check of a kernel file reads.

    Attributes:
        source: the kernel file.
        workload: its workload, None where there is none or it cannot be used.
        others: headers and Python modules of the user's that these two include or import, directly or not.
    """

    source: SourceFile
    workload: WorkloadFile | None
    others: tuple[SourceFile, ...]

    @property
    def paths(self) -> frozenset[Path]:
        """Every file among them, without links."""
        files = (self.source, *([self.workload.source] if self.workload else []), *self.others)
        return frozenset(file.path.resolve() for file in files)

    def key(self, settings: Settings, arch: str, gpu: Gpu | None, *, run: bool) -> str:
        """Content address of what a check finds: the same wherever the files lie together."""
        folder = self.source.path.parent
        texts = {os.path.relpath(file.path, folder): file.text for file in self.others}
        if self.workload is not None:
            texts[f"workload {os.path.relpath(self.workload.source.path, folder)}"] = self.workload.source.text
        parts = {
            "name": self.source.path.name,
            "text": self.source.text,
            "texts": texts,
            "arch": arch,
            "gpu": [gpu.name, gpu.uuid, gpu.driver] if gpu else None,
            "run": run,
            "judge": settings.judge.model_dump(),
            "options": settings.build.options,
            "deadlines": [settings.runner.deadline_floor_s, settings.runner.deadline_factor],
            "tools": _tools(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dependencies_of(source: SourceFile, workload: WorkloadFile | None, settings: Settings) -> Dependencies:
    """The texts that checking `source` with `workload` reads; what cannot be read is left out, for a check says so."""
    headers = user_headers(source, settings.build.include_dirs) if source.path.suffix != ".py" else ()
    others = [SourceFile(header.path, header.text) for header in headers]
    pythons = [source] if source.path.suffix == ".py" else []
    if workload is not None and not workload.in_kernel_file:
        pythons.append(workload.source)
    seen = {file.path.resolve() for file in pythons}
    while pythons:
        for module in local_modules(pythons.pop()):
            if module.path.resolve() not in seen:
                seen.add(module.path.resolve())
                pythons.append(module)
                others.append(module)
    return Dependencies(source, workload, tuple(sorted(others, key=lambda file: file.path)))


@cache
def _tools() -> dict[str, str]:
    """What compiles and runs, told without starting any of it: versions of packages, programs by size and time."""
    found = dict(package_versions())
    for name in _PROGRAMS:
        path = find_tool(name)
        if path is not None:
            status = path.stat()
            found[name] = f"{path} {status.st_size} {status.st_mtime_ns}"
    found["kernel-lsp"] = _own_digest()
    return found


def _own_digest() -> str:
    """This program by its files, so that results do not outlive a change of what made them."""
    digest = hashlib.sha256()
    root = Path(kernel_lsp.__file__).parent
    for path in sorted(_own_files(root)):
        status = path.stat()
        digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _own_files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names if name.endswith((".py", ".cu")))
