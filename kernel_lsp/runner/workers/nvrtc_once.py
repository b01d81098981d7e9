"""Load NVRTC and have its headers unpacked, once in a zygote, so that no worker has to.

Workers may not write to the user's cache, in which the headers stay for all sessions.
"""

import contextlib

from kernel_lsp.compiler.cuda.nvrtc import own_headers
from kernel_lsp.errors import RunnerError

with contextlib.suppress(RunnerError):  # a worker that compiles will report it; others do not need the library
    own_headers().unpack_beside()
