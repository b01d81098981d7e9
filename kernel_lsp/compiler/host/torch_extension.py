"""torch's `cpp_extension`, imported without a question to the GPU. Worker processes only.

Where there is an nvcc, importing it asks torch whether there is a GPU. A process that asked so cannot use CUDA in a
fork of it, and a nursery's workers are such forks.
"""

from unittest import mock

import torch

with mock.patch.object(torch.cuda, "is_available", return_value=True):
    from torch.utils import cpp_extension

__all__ = ["cpp_extension"]
