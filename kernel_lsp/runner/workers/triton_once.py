"""Do Triton's one-time work when this module is imported: in a zygote, so that no worker has to.

Triton hashes itself for the keys of its cache, and remembers the result; a fork remembers what its parent did. Most of
that is its compiler library, of half a gigabyte, which takes longer than many a kernel takes to compile. No cache of
ours outlives a session, so here the library's place, size and times stand for its content. Triton's first launch
imports the descriptors of a language of which most kernels use nothing. Modules that the first build of a file imports
are here, too: a session would take them for the user's own, and set up its workers anew.
"""

import importlib
import io
from pathlib import Path
from typing import IO, Any
from unittest import mock

from triton.runtime import cache

from kernel_lsp.source.grammar import python_grammar

_LIBRARY = "libtriton"


def _opened(path: str, mode: str) -> IO[Any]:
    """Open a file, or what stands for the content of the compiler library."""
    file = Path(path)
    if not file.name.startswith(_LIBRARY):
        return file.open(mode)
    facts = file.stat()
    return io.BytesIO(repr((path, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)).encode())


for name in (
    "triton.backends.nvidia.compiler",
    "triton.experimental.gluon.nvidia.hopper",
    "triton.tools.tensor_descriptor",
):
    importlib.import_module(name)
with mock.patch.object(cache, "open", _opened, create=True):
    cache.triton_key()
python_grammar()
