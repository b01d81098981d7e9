"""The inputs of a check of one kernel file: the texts it reads, and everything else that could change its result."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernel_lsp
from kernel_lsp.compiler.headers.includers import including_files
from kernel_lsp.compiler.headers.project import guessed_folders
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.compiler.toolchain.tools import package_versions
from kernel_lsp.config.settings import Settings
from kernel_lsp.config.variables import named_variables
from kernel_lsp.device.device import Device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.code_lines import CodeLines, code_lines
from kernel_lsp.source.files import cuda_part, language_of
from kernel_lsp.source.imports import folders_of, local_imports
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.spec import WorkloadFile

_PROGRAMS = ("nvcc", "ptxas", "nvdisasm")
_READS_TEXTS = re.compile(r"\b(?:inspect|getsource\w*|linecache|tokenize|read_text|open)\b|__file__|__FILE__")
_NEEDS_LINES = re.compile(r"__LINE__|assert\b|source_location|lineno|currentframe|traceback")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The texts that a check of a kernel file reads.

    Attributes:
        source: the kernel file.
        workload: its workload, if it has one.
        others: headers and Python modules of the user's that these two include or import, directly or not; of a header
            of kernels also files that include it.
        whole: True if these are all; False if it imports a module whose content is unknown.
        guessed_folders: include folders that nobody has named and that headers were found in.
    """

    source: SourceFile
    workload: WorkloadFile | None
    others: tuple[SourceFile, ...]
    whole: bool
    guessed_folders: tuple[Path, ...] = ()

    @property
    def paths(self) -> frozenset[Path]:
        """Return the paths of all these files, without links."""
        files = (self.source, *([self.workload.source] if self.workload else []), *self.others)
        return frozenset(file.path.resolve() for file in files)

    @property
    def code(self) -> CodeLines:
        """Return the kernel file's lines of code."""
        return code_lines(self.source.text, python=is_python(self.source.path))

    def key(self, settings: Settings, device: Device, gpu: Gpu | None, *, run: bool) -> str | None:
        """Return the content address of a check's result, independent of the files' place; None if inputs are
        unknown.

        Comments and empty lines of the kernel file do not count where no text could tell: some read texts as they
        stand, some ask for the number of a line. Comments of all other files count.
        """
        if not self.whole:
            return None
        own = [self.code.text, *(file.text for file in self.others)]
        every = [*own, self.workload.source.text] if self.workload else own
        as_written = any(map(_READS_TEXTS.search, every))
        at_lines = self.code.numbers if any(map(_NEEDS_LINES.search, own)) else None
        folder = self.source.path.parent.resolve()
        texts = {os.path.relpath(file.path.resolve(), folder): file.text for file in self.others}
        if self.workload is not None:
            workload = self.workload.source
            texts[f"workload {os.path.relpath(workload.path.resolve(), folder)}"] = workload.text
        parts = {
            "name": self.source.path.name,
            "language": language_of(self.source.path, self.source.text),
            "text": self.source.text if as_written else self.code.text,
            "lines": at_lines,
            "texts": texts,
            "device": repr(device),
            "gpu": [gpu.name, gpu.uuid, gpu.driver] if gpu else None,
            "run": run,
            "judge": settings.judge.model_dump(),
            "options": settings.build.options,
            "deadlines": [settings.runner.deadline_floor_s, settings.runner.deadline_factor],
            "environment": named_variables(settings.runner.environment),
            "tools": _tools(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dependencies_of(source: SourceFile, workload: WorkloadFile | None, settings: Settings) -> Dependencies:
    """Return the texts that checking `source` with `workload` reads."""
    python = is_python(source.path)
    part = cuda_part(source)
    guessed = guessed_folders(part, settings.build.include_dirs, anywhere=workload is None)
    headers = user_headers(part, (*settings.build.include_dirs, *guessed))
    found = {header.path: SourceFile(header.path, header.text) for header in headers}
    if not python:
        found |= {file.path: file for file in including_files(source, settings.build.include_dirs)}
    whole = True
    files = [source] if python else []
    if workload is not None and not workload.in_kernel_file:
        files.append(workload.source)
    folders, installed = folders_of(*files), [name.replace("-", ".") for name in package_versions()]
    for file in files:
        modules = local_imports(file, folders, installed)
        whole = whole and modules is not None
        found |= {module.path: module for module in modules or ()}
    own = {file.path for file in files}
    others = tuple(found[path] for path in sorted(found) if path not in own)
    return Dependencies(source, workload, others, whole, guessed)


@cache
def _tools() -> dict[str, str]:
    """Return the versions of all compilers and libraries without starting any; for programs path, size and time."""
    found = {**package_versions(), "python": sys.version}
    for name in _PROGRAMS:
        path = find_tool(name)
        if path is not None:
            status = path.stat()
            found[name] = f"{path} {status.st_size} {status.st_mtime_ns}"
    return found | {"kernel-lsp": _own_digest()}


def _own_digest() -> str:
    """Return a hash of this program's files, so that results do not outlive a change of the code that made them."""
    digest = hashlib.sha256()
    root = Path(kernel_lsp.__file__).parent
    for path in sorted(_own_files(root)):
        status = path.stat()
        digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _own_files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names if name.endswith((".py", ".cu")))
