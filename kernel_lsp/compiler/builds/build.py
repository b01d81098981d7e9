"""Records of a build: what came of it, and the compiler's messages."""

from dataclasses import dataclass, field
from enum import StrEnum

from kernel_lsp.compiler.machine_code.binary import Binary


class Severity(StrEnum):
    """Severity of a diagnostic."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of a compiler, in the coordinates of the user's own file.

    Lines and columns count from 1, columns in UTF-8 bytes; `end_line`, `end_column` point past the last character.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: Severity
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """The outcome of one build.

    Attributes:
        binary: None when the build failed; the reason is then among `diagnostics`.
        diagnostics: errors first, in file order.
        way: which rung of the ladder made it: `nvrtc`, `nvcc-slice`, `nvcc`, `triton`, `extension`, or `torch`
            where there is nothing to compile.
        seconds: wall time of the compile that made it (of the original one if it came from the cache).
        cached: whether it came from the cache.
        log: the compiler's own words, whole.
    """

    binary: Binary | None
    diagnostics: tuple[Diagnostic, ...]
    way: str
    seconds: float
    cached: bool = False
    log: str = field(default="", repr=False)
