"""Where there is no driver, tensor maps are made all the same, and passed to kernels as their 128 bytes."""

import pytest

pytest.importorskip("torch")
driver = pytest.importorskip("cuda.bindings.driver")

from kernel_lsp.compiler.fakes.driver import fake_driver  # noqa: E402
from kernel_lsp.device.arguments import pack_argument  # noqa: E402
from kernel_lsp.emulate.tensormap import TensorMap, decode  # noqa: E402
from kernel_lsp.errors import WorkloadError  # noqa: E402


def encoded(address: int = 4096, columns: int = 64, interleave: int = 0):
    """Status and map of boxes of 8 x 64 float16 elements with a swizzle of 128 bytes, in 32 rows."""
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        address,
        [driver.cuuint64_t(columns), driver.cuuint64_t(32)],
        [driver.cuuint64_t(2 * columns)],
        [driver.cuuint32_t(64), driver.cuuint32_t(8)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave(interleave),
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def test_a_map_arrives_as_it_was_asked_for():
    with fake_driver():
        status, made = encoded()
    assert status == driver.CUresult.CUDA_SUCCESS
    packed = pack_argument(made, 128, "CUtensorMap", "`k` argument 0")
    assert decode(packed) == TensorMap(6, 4096, (64, 32), (128,), (64, 8), (1, 1), 3)


@pytest.mark.parametrize("wrong", [{"address": 4100}, {"columns": 60}, {"interleave": 1}])
def test_a_map_that_the_driver_refuses_is_refused(wrong: dict[str, int]):
    with fake_driver():
        status, made = encoded(**wrong)
    assert status == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert made is None


def test_a_map_is_passed_only_where_the_kernel_reads_one():
    with fake_driver():
        _, made = encoded()
    with pytest.raises(WorkloadError, match="is a CUtensorMap, but the kernel reads 8 bytes there"):
        pack_argument(made, 8, "const float*", "`k` argument 0")
