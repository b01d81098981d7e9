"""Tensor maps as CUDA's driver makes them."""

from kernel_lsp.device.driver import check, cu
from kernel_lsp.emulate.tensormap import TensorMap


def driver_map(tensor: TensorMap) -> bytes:
    """Return a map as the 128 bytes that a GPU reads.

    Raises:
        CudaError: the driver refuses it.
    """
    fill, of = cu.CUtensorMapFloatOOBfill, tensor.im2col
    before = (
        cu.CUtensorMapDataType(tensor.kind),
        len(tensor.shape),
        tensor.address,
        [cu.cuuint64_t(extent) for extent in tensor.shape],
        [cu.cuuint64_t(stride) for stride in tensor.strides] or [cu.cuuint64_t(0)],
    )
    after = (
        [cu.cuuint32_t(step) for step in tensor.steps],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        cu.CUtensorMapSwizzle(tensor.swizzle),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        fill(int(tensor.fills_with_nan)),
    )
    if of is None:
        answer = cu.cuTensorMapEncodeTiled(*before, [cu.cuuint32_t(extent) for extent in tensor.box], *after)
    else:
        box = list(of.lower), list(of.upper), of.channels, of.pixels
        answer = cu.cuTensorMapEncodeIm2col(*before, *box, *after)
    made = check(answer, "making a tensor map")
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)
