"""`check`: everything that can be said of kernel files as they stand: they compile, run, are right, are no worse.

A file is examined once: what was found is kept in the store under a hash of all it rests on, and while nothing changes
no process is started. Comments that silence findings and the baseline in the repository are applied to that each time.
"""

from kernel_lsp.check.checker import Checker, check, record_baseline
from kernel_lsp.check.files import find_kernel_files, kernel_files_among
from kernel_lsp.check.record import FileReport

__all__ = ["Checker", "FileReport", "check", "find_kernel_files", "kernel_files_among", "record_baseline"]
