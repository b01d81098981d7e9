"""The fast build of torch extensions: the host compiler on the host code, NVRTC on the device code.

Worker processes only. The host part is compiled first, since it tells which template instances the launches use. Code
that the thin header cannot compile is no failure: `fast_build` returns the reason, and the full build takes over.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild, HostBuild, Launchable
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.cuda.host_needs import wants_host_code
from kernel_lsp.compiler.headers.prelude import HALF_HEADER
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.host.compiler import compile_host
from kernel_lsp.compiler.host.flags import Flags, translate
from kernel_lsp.compiler.host.request import ExtensionRequest, Unit
from kernel_lsp.compiler.host.stubs import Stub, read_stubs
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.host_view import HostViewError, host_view
from kernel_lsp.source.modules import in_place, without_spaces_of_lambdas
from kernel_lsp.source.outline import without_comments

_BINDS = re.compile(r"\bPYBIND11_MODULE\s*\(")
_NOT_HERE = (
    (re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?\s*\("), "registers operators of its own"),
    (re.compile(r"\bstd\s*::\s*(?:j?thread|async)\b|\bpthread_create\b|#\s*pragma\s+omp\b"), "starts threads"),
)
_HALF = re.compile(r"\b(?:c10|at|torch)::(?:Half|BFloat16)\b|\b(?:__half|half2?\b|__nv_bfloat16)")
"""Names of 16-bit floats. Torch's headers include CUDA's, so files may use them without including anything."""
_ERROR = re.compile(
    r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>.*)$", re.MULTILINE
)
# Compiler messages about mistakes that no header could fix.
_OWN_MISTAKE = re.compile(
    r"expected|stray|missing terminating|unterminated|redefinition of|invalid suffix|two or more"
    r"|expression cannot be used as a function"
)  # "cannot be used as a function": a semicolon is missing before a launch
_TORCH_HEADER = re.compile(r'#\s*include\s*[<"](?:torch|ATen|c10|pybind11)/')
_WORD = re.compile(r"[A-Za-z_]\w*")
_LIBRARY = re.compile(r"\w\s*::|\b(?:C10|AT|TORCH|THRUST|CUB)_")  # names that come from headers
_DEFAULTS = BuildOptions()


def fast_build(
    request: ExtensionRequest,
    arch: str,
    origin: SourceFile,
    folder: Path,
    options: BuildOptions = _DEFAULTS,
    cache: BuildCache | None = None,
    libraries: FileCache | None = None,
) -> ExtensionBuild | str:
    """Build an extension on the fast path.

    Args:
        request: what to build.
        arch: `sm_90` and the like.
        origin: the file whose text holds the sources, so that messages and line information name its lines.
        folder: where the compiled thin header is kept.
        options: the user's own compiler options.
        cache: of device code.
        libraries: cache of host code.

    Returns:
        The build, failed if the user's text is at fault; or the reason why this extension needs the full build.
    """
    flags = translate(request.cflags, request.cuda_cflags, request.ldflags, torch=_uses_torch(request))
    if (reason := _violation(request, flags)) is not None:
        return reason
    try:
        texts = [_host_text(unit, origin, request) for unit in request.units]
        headers = _headers(request, texts, options)
    except HostViewError as error:
        return str(error)
    if request.functions is not None:
        texts[0] += _bindings(request.functions)
    include = [f"-I{path}" for path in (*request.include_paths, *map(str, options.include_dirs))]
    host = compile_host(texts, [*flags.host, *include], folder, libraries, headers)
    record = HostBuild("fast", "", host.seconds, 0.0, host.cached)
    device = _DeviceCode(request, arch, origin, options, flags, cache)
    if host.library is None:
        first = _first_error(host.log)
        if first is None or first.path != str(_named(request, origin)):
            return _reason(first, host.log)
        if _OWN_MISTAKE.match(first.message):
            own = Build(None, (first,), "host", host.seconds, log=host.log)
        else:
            own = _mistaken_kernels(device, first.line)
        if own is None:
            return _reason(first, host.log)
        return ExtensionBuild(request.digest, request.name, record, own)
    if not request.cuda:
        build = Build(None, (), "host", host.seconds, host.cached)
        return ExtensionBuild(request.digest, request.name, record, build, host.library)
    return _with_device(device, host.library, record)


@dataclass(frozen=True, slots=True)
class _DeviceCode:
    """The device code of a request with all that its compilation needs."""

    request: ExtensionRequest
    arch: str
    origin: SourceFile
    options: BuildOptions
    flags: Flags
    cache: BuildCache | None

    def source(self) -> SourceFile:
        """Return the only unit of device code, at its own lines of the file that holds it."""
        line, text = placed(self.request.cuda[0], self.origin)
        text = "\n" * (line - 1) + text
        named = _named(self.request, self.origin)
        return SourceFile(named, without_spaces_of_lambdas(text) if self.flags.extended_lambda else text)

    def build(self, source: SourceFile, names: tuple[str, ...] = ()) -> Build:
        """Compile `source` with these template instances."""
        half = (f"--pre-include={HALF_HEADER}",) if _HALF.search(source.text + " ".join(names)) else ()
        folders = (*map(Path, self.request.include_paths), *self.options.include_dirs)
        options = BuildOptions((*self.flags.device, *half, *self.options.flags), folders)
        return build_cuda(source, self.arch, names, options, self.cache)


def _mistaken_kernels(device: _DeviceCode, line: int) -> Build | None:
    """Return the build of the device code alone if it fails at this line too, and the line uses nothing of torch's.

    Then the mistake is the user's: the device compiler explains it better, and torch's own headers would not fix it.
    """
    if not device.request.cuda:
        return None
    source = device.source()
    build = device.build(source)
    first = next((found for found in build.diagnostics if found.severity is Severity.ERROR), None)
    if build.binary is not None or first is None or (first.path, first.line) != (str(source.path), line):
        return None
    lines = source.text.splitlines()
    return None if line > len(lines) or _LIBRARY.search(lines[line - 1]) else build


def _with_device(device: _DeviceCode, library: bytes, record: HostBuild) -> ExtensionBuild | str:
    request, source = device.request, device.source()
    parameters = {
        kernel.name: tuple(p.name for p in kernel.parameters) for kernel in find_cuda_kernels(source.text, source.path)
    }
    stubs = read_stubs(library, frozenset(parameters))
    names = tuple(dict.fromkeys(stub.name for stub in stubs if "<" in stub.name))
    if (lambdas := next((name for name in names if "lambda" in name), None)) is not None:
        return f"`{lambdas}` is an instance for a lambda, which has no name"
    build = device.build(source, names)
    record = replace(
        record,
        seconds_device=0.0 if build.cached else build.seconds,
        cached_device=build.cached,
        arch=build.binary.arch if build.binary else "",
    )
    if build.binary is None:
        if wants_host_code(build, {str(source.path): source.text}) or any(
            "name expression" in d.message for d in build.diagnostics
        ):
            return next(d.message for d in build.diagnostics if d.severity is Severity.ERROR)
        return ExtensionBuild(request.digest, request.name, record, build)
    known = {kernel.entry for kernel in build.binary.kernels}
    kernels: list[Launchable] = []
    for stub in stubs:
        entry = stub.symbol if stub.symbol in known else build.binary.entries.get(stub.name)
        if entry is None:
            return f"the device compiler made no `{stub.name}`"
        kernels.append(Launchable(stub.start, stub.end, entry, stub.name, _parameters(stub, parameters)))
    return ExtensionBuild(request.digest, request.name, record, build, library, tuple(kernels))


def _parameters(stub: Stub, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return known.get(stub.name.partition("<")[0], ())


def _violation(request: ExtensionRequest, flags: Flags) -> str | None:
    """Return why a request needs the full build, as far as its text and options tell; None if they do not."""
    if flags.unknown is not None:
        return f"the option {flags.unknown} is for other compilers"
    if len(request.cuda) > 1:
        return "it has several CUDA files"
    texts = [without_comments(unit.text.encode()).decode() for unit in request.units]
    for pattern, what in _NOT_HERE:
        if any(pattern.search(text) for text in texts):
            return f"its host code {what}"
    if request.functions is None and not any(_BINDS.search(text) for text in texts):
        return "it binds no functions"
    return None


def _host_text(unit: Unit, origin: SourceFile, request: ExtensionRequest) -> str:
    line, text = placed(unit, origin)
    view = host_view(text, _asked_for(unit, request))
    return f"#line {line} {quoted(unit.path or str(origin.path))}\n{view}\n"


def _uses_torch(request: ExtensionRequest) -> bool:
    """Return True unless the request is a CUDA file by itself that includes none of torch's headers."""
    return any(unit.path is None or _TORCH_HEADER.search(unit.text) for unit in request.units)


def _asked_for(unit: Unit, request: ExtensionRequest) -> list[str] | None:
    """Return the functions that a CUDA file by itself is built for; None where all of its host code counts."""
    return None if unit.path is None or request.functions is None else [name for name, _ in request.functions]


def _headers(request: ExtensionRequest, views: Sequence[str], options: BuildOptions) -> dict[str, str]:
    """Return the host code of headers in the folder of a CUDA file that is built by itself, by their relative paths."""
    found: dict[str, str] = {}
    for unit, view in zip(request.units, views, strict=True):
        if unit.path is None or _asked_for(unit, request) is None:
            continue
        folder = Path(unit.path).parent.resolve()
        headers = user_headers(SourceFile(Path(unit.path), unit.text), options.include_dirs)
        for header in (header for header in headers if header.path.is_relative_to(folder)):
            others = (view, *(other.text for other in headers if other is not header))
            said = _WORD.findall(without_comments("\n".join(others).encode()).decode())
            text = f"#line 1 {quoted(str(header.path))}\n{host_view(header.text, said)}\n"
            found[str(header.path.relative_to(folder))] = text
    return found


def placed(unit: Unit, origin: SourceFile) -> tuple[int, str]:
    """Return the line of `origin` on which a unit's text begins, and the text with the line numbers of that file.

    Text that is joined from several strings, or computed, is laid out as its parts stand in the Python file.
    """
    if unit.path is not None or not unit.text.strip():
        return 1, unit.text
    if (at := origin.text.find(unit.text)) >= 0:
        return 1 + origin.text.count("\n", 0, at), unit.text
    return 1, in_place(origin.text, unit.text) or unit.text


def _named(request: ExtensionRequest, origin: SourceFile) -> Path:
    return Path(request.cuda[0].path) if request.cuda and request.cuda[0].path else origin.path


def _bindings(functions: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f'  m.def("{name.rpartition("::")[2]}", {name}, {quoted(doc)});\n' for name, doc in functions)
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"


def quoted(text: str) -> str:
    """Return `text` as a C++ string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _first_error(log: str) -> Diagnostic | None:
    match = _ERROR.search(log)
    if match is None:
        return None
    line, column = int(match["line"]), int(match["column"])
    return Diagnostic(match["path"], line, column, line, column + 1, Severity.ERROR, match["message"])


def _reason(first: Diagnostic | None, log: str) -> str:
    if first is not None:
        return f"{Path(first.path).name}:{first.line}: {first.message}"
    return next((line for line in log.splitlines() if "error" in line or "undefined reference" in line), log.strip())
