"""The `check` command: examines kernel files as they stand: they compile, run, give right results, and got no worse.

A file is examined once: its result is kept in the store under a hash of all inputs, and while none of them changes no
process is started. Comments that silence findings, and the repository's baseline, are applied anew each time.
"""

from kernel_lsp.check.checker import Checker, check, record_baseline
from kernel_lsp.check.files import find_kernel_files, kernel_files_among
from kernel_lsp.check.record import FileReport

__all__ = ["Checker", "FileReport", "check", "find_kernel_files", "kernel_files_among", "record_baseline"]
