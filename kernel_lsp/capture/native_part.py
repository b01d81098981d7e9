"""Builds the two C++ programs of `native/` with the machine's own compiler, once for each version of them."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from kernel_lsp.compiler.host.compiler import host_compiler, standard_library
from kernel_lsp.errors import CannotJudgeError

RECORDER = "record_launches"
"""Name of the library that runs in the user's process."""
REPLAY = "replay_launch"
"""Name of the program that launches a snapshot again."""
_SOURCES = Path(__file__).parent / "native"
_HEADER = "cuda_calls.h"
_FLAGS = {
    RECORDER: ("-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-Wl,-Bsymbolic"),
    REPLAY: (),
}
_SECONDS = 120.0


def native_part(name: str, cache: Path) -> Path:
    """Return the built `RECORDER` or `REPLAY`, from the folder `cache` if it lies there.

    Raises:
        CannotJudgeError: there is no g++, it refused, or the folder cannot be written to.
    """
    compiler = host_compiler()
    if compiler is None:
        raise CannotJudgeError("there is no g++ here, which builds the recorder", fix="Install g++, or set CXX to one.")
    program, version = compiler
    source = _SOURCES / f"{name}.cpp"
    flags = ("-std=c++17", "-O2", "-w", *_FLAGS[name])
    texts = (source.read_bytes(), (_SOURCES / _HEADER).read_bytes(), version.encode(), " ".join(flags).encode())
    built = cache / "native" / f"{name}-{hashlib.sha256(b'|'.join(texts)).hexdigest()[:16]}"
    if built.is_file():
        return built
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            partial = Path(folder) / name
            command = [str(program), *flags, str(source), "-o", str(partial), *standard_library(program)]
            command += ["-ldl", "-pthread"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
                raise CannotJudgeError(f"{program.name} cannot build {source.name}: {said}")
            partial.replace(built)  # by rename: another process may load it at this moment
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotJudgeError(f"{source.name} cannot be built: {error}") from None
    return built
