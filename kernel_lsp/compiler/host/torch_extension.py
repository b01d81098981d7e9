"""Imports torch's `cpp_extension` without asking CUDA for a GPU. Worker processes only.

If nvcc is installed, the import asks torch whether there is a GPU. After that question no fork of the process can use
CUDA, and GPU workers are forks.
"""

from unittest import mock

import torch

with mock.patch.object(torch.cuda, "is_available", return_value=True):
    from torch.utils import cpp_extension

__all__ = ["cpp_extension"]
