"""What programs find of CUDA's libraries while Triton compiles for a fake GPU."""

from unittest.mock import Mock

import pytest
import torch

from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.triton.driver import received_by
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import CannotJudgeError


def test_a_handle_of_cublas_is_made_without_a_gpu_and_not_used() -> None:
    """As Triton's and Gluon's tutorials make one when they are imported."""
    from triton._C.libtriton import nvidia

    device = device_named("sm_90a")
    with fake_gpu(device), received_by(Mock(), device):
        blas = nvidia.cublas.CublasLt(torch.empty(32, device="cuda", dtype=torch.uint8))
        with pytest.raises(CannotJudgeError, match="`matmul` of cuBLAS is not emulated"):
            blas.matmul(None, None, None)
