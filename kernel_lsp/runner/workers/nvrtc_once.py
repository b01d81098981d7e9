"""What NVRTC does once in a process, done in a nursery as `triton_once` is: it is loaded, its headers are unpacked.

Workers may not write to the user's cache, in which the headers stay for all sessions.
"""

import contextlib

from kernel_lsp.compiler.nvrtc import include_folders

with contextlib.suppress(RuntimeError):  # without its library, who compiles will say so; others do not need it
    include_folders()
