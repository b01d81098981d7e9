"""Load NVRTC and unpack its headers, once in a zygote, so that no worker has to.

Workers may not write to the user's cache, in which the headers stay for all sessions.
"""

import contextlib

from kernel_lsp.compiler.nvrtc import include_folders
from kernel_lsp.errors import RunnerError

with contextlib.suppress(RunnerError):  # a worker that compiles will report it; others do not need the library
    include_folders()
