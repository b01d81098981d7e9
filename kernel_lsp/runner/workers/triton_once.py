"""Do Triton's one-time work when this module is imported: in a zygote, so that no worker has to.

Triton hashes itself for the keys of its cache. That reads the whole compiler library, which takes longer than many a
kernel takes to compile; but it is remembered, and a fork remembers what its parent did. Its first launch imports the
descriptors of a language of which most kernels use nothing. Modules that the first build of a file imports are here,
too: a session would take them for the user's own, and set up its workers anew.
"""

import importlib

from triton.runtime.cache import triton_key

from kernel_lsp.source.grammar import python_grammar

for name in (
    "triton.backends.nvidia.compiler",
    "triton.experimental.gluon.nvidia.hopper",
    "triton.tools.tensor_descriptor",
):
    importlib.import_module(name)
triton_key()
python_grammar()
