"""Torch extensions of a user's whole program on the emulator: built on the fast path, launched there. See
`emulated_program.py`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host.build import placed
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.device import Device
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.workers.inline import Launches, build_extension, load_extension
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.text import Lines

Placed = Callable[[str, str, str, int], None]
"""Takes the PTX of a build, the symbol of a kernel in it, and its file and line."""


class EmulatedExtensions:
    """Builds the extensions that a program asks for, each once."""

    def __init__(self, device: Device, launches: Launches, placed: Placed) -> None:
        self._device, self._launches, self._placed = device, launches, placed
        self._modules: dict[str, ModuleType] = {}

    def module(self, request: ExtensionRequest, asked_in: Path) -> ModuleType:
        """Return an extension whose kernels run on the emulator; `asked_in` is the file that asks for it.

        Raises:
            CannotJudgeError: it cannot be built without nvcc and torch's own headers, or not to run here.
            WorkloadError: it does not compile.
        """
        if request.digest not in self._modules:
            origin = _origin(request, asked_in)
            build = self._built(request, origin)
            if build.binary is not None:
                lines = _lines(request, origin)
                for kernel in build.kernels:
                    line = lines.get(kernel.name.partition("<")[0], 1)
                    self._placed(build.binary.ptx or "", kernel.entry, str(origin.path), line)
            self._modules[request.digest] = load_extension(
                build, self._launches, Path(os.environ["KERNEL_LSP_CAPTURE"])
            )
        return self._modules[request.digest]

    def _built(self, request: ExtensionRequest, origin: SourceFile) -> ExtensionBuild:
        settings = load_settings(origin.path.parent, strict=False)[0]
        folder = (settings.paths.cache / "builds").absolute()
        build = build_extension(request, self._device.arch, origin, folder, settings.build.cache_limit)
        if isinstance(build, str):
            raise CannotJudgeError(f"the extension is not emulated: {build}", fix="Run it on a GPU.")
        if not build.ok:
            first = next((one for one in build.build.diagnostics if one.severity is Severity.ERROR), None)
            said = first.message if first else "the compiler gave no reason"
            place = (Path(first.path), first.line) if first else (origin.path, None)
            raise WorkloadError(f"the extension `{request.name}` does not compile: {said}", *place)
        return build


def _lines(request: ExtensionRequest, origin: SourceFile) -> dict[str, int]:
    """Return the line of each kernel, by its name, in the file that holds an extension's text."""
    found: dict[str, int] = {}
    for unit in request.cuda:
        first, text = placed(unit, origin)
        lines = Lines(text.encode())
        for kernel in find_cuda_kernels(text, origin.path):
            found[kernel.name] = first - 1 + lines.position(kernel.name_span.start)[0]
    return found


def _origin(request: ExtensionRequest, asked_in: Path) -> SourceFile:
    """Return the file that holds an extension's CUDA text."""
    unit = next(iter(request.cuda), None)
    if unit is not None and unit.path is not None:
        return SourceFile(Path(unit.path), unit.text)
    try:
        return SourceFile(asked_in, asked_in.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return SourceFile(asked_in, unit.text if unit else "")
