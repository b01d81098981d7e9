"""Products of warpgroups: layouts of operands in shared memory, registers, signs, and stages that are still read."""

import numpy as np
import pytest
from emulator_kit import HOPPER, compiled, launch, line_of

from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.matrix.mma import bind_product

WGMMA = r"""
__device__ u64 described(const void* p, int leading, int stride, u64 mode) {
    return (u64)((at(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | mode << 62;
}
__device__ void warps_ready() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
#define D8(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
"""
SOURCE = (
    HOPPER
    + WGMMA
    + r"""
#define PRODUCT(NAME, TYPES, KEEP, SIGN_A, SIGN_B, TURN_A, TURN_B)                                                  \
    extern "C" __global__ void NAME(const unsigned char* a, int a_bytes, const unsigned char* b, int b_bytes,       \
                                    float* c, int lead_a, int stride_a, int lead_b, int stride_b, u64 mode) {       \
        extern __shared__ __align__(1024) unsigned char tile[];                                                     \
        unsigned char* right = tile + (a_bytes + 1023) / 1024 * 1024;                                               \
        for (int i = threadIdx.x; i < a_bytes; i += blockDim.x) tile[i] = a[i];                                     \
        for (int i = threadIdx.x; i < b_bytes; i += blockDim.x) right[i] = b[i];                                    \
        fence();                                                                                                    \
        __syncthreads();                                                                                            \
        float d[8];                                                                                                 \
        for (int i = 0; i < 8; ++i) d[i] = 1;                                                                       \
        warps_ready();                                                                                              \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %10, 0;\n"                                             \
                     "wgmma.mma_async.sync.aligned.m64n16k16." TYPES " {%0, %1, %2, %3, %4, %5, %6, %7}, "          \
                     "%8, %9, keep, " #SIGN_A ", " #SIGN_B ", " #TURN_A ", " #TURN_B ";\n}"                         \
                     : D8(d) : "l"(described(tile, lead_a, stride_a, mode)),                                        \
                     "l"(described(right, lead_b, stride_b, mode)), "r"(KEEP));                                     \
        commit_products();                                                                                          \
        wait_products<0>();                                                                                         \
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;                                                       \
        for (int i = 0; i < 8; ++i)                                                                                 \
            c[(16 * warp + lane / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];               \
    }
PRODUCT(plain, "f32.bf16.bf16", 1, 1, 1, 0, 0)
PRODUCT(fresh, "f32.f16.f16", 0, 1, 1, 0, 0)
PRODUCT(negative, "f32.f16.f16", 1, -1, 1, 0, 0)
PRODUCT(turned, "f32.f16.f16", 1, 1, 1, 1, 1)
extern "C" __global__ void from_registers(const unsigned* a, const unsigned char* b, float* c) {
    __shared__ alignas(1024) unsigned char tile[512];
    for (int i = threadIdx.x; i < 512; i += blockDim.x) tile[i] = b[i];
    fence();
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float d[8] = {};
    unsigned r[4];
    for (int i = 0; i < 4; ++i) r[i] = a[(16 * warp + lane / 4 + i % 2 * 8) * 8 + i / 2 * 4 + lane % 4];
    warps_ready();
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
                 : D8(d) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(described(tile, 128, 256, 0)));
    commit_products();
    wait_products<0>();
    for (int i = 0; i < 8; ++i)
        c[(16 * warp + lane / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
extern "C" __global__ void again(const unsigned char* a, float* c) {
    __shared__ alignas(1024) unsigned char tile[2048 + 512];
    float d[8] = {};
    for (int k = 0; k < 2; ++k) {
        BEFORE
        for (int i = threadIdx.x; i < 2560; i += blockDim.x) tile[i] = a[i];  // overwrites
        FENCE
        __syncthreads();
        warps_ready();
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                     "%8, %9, 1, 1, 1, 0, 0;"
                     : D8(d) : "l"(described(tile, 128, 256, 0)), "l"(described(tile + 2048, 128, 256, 0)));  // reads
        commit_products();
    }
    wait_products<0>();
    for (int i = 0; i < 8; ++i) c[threadIdx.x * 8 + i] = d[i];
}
extern "C" __global__ void half_of_a_group(const unsigned char* a, float* c) {
    __shared__ alignas(1024) unsigned char tile[2048 + 512];
    for (int i = threadIdx.x; i < 2560; i += blockDim.x) tile[i] = a[i];
    fence();
    __syncthreads();
    float d[8] = {};
    if (threadIdx.x < 64)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                     "%8, %9, 1, 1, 1, 0, 0;"
                     : D8(d) : "l"(described(tile, 128, 256, 0)), "l"(described(tile + 2048, 128, 256, 0)));
    c[threadIdx.x] = d[0];
}
"""
)
RIGHT = SOURCE.replace("BEFORE", "wait_products<0>(); __syncthreads();").replace("FENCE", "fence();")


def ptx():
    return compiled(RIGHT, "sm_90a")


MODES = {0: 0, 128: 1, 64: 2, 32: 3}  # bytes of the swizzle -> its number in a descriptor


def outermost(done) -> set[tuple[str, int]]:
    """The findings' kinds and the lines in the kernels, not in helpers."""
    return {(f.kind.value, f.location.chain[-1].line) for f in done.findings if f.location}


def put(image: np.ndarray, place: int, width: int, value: np.ndarray) -> None:
    """Write 16 bytes to the place where a swizzle of `width` bytes has them."""
    if width:
        row, piece = place // 128, place // 16 % 8
        place = row * 128 + (piece ^ row % 8 % (width // 16)) * 16 if width == 128 else place
        if width == 64:
            place = place // 16 * 16 ^ (row % 4) * 16
        elif width == 32:
            place = place // 16 * 16 ^ (row % 2) * 16
    image[place : place + 16] = value.view(np.uint8)


def along_k(matrix: np.ndarray, width: int) -> tuple[np.ndarray, int, int]:
    """A matrix (rows, 16) in shared memory, neighbours in K side by side; its leading and stride offsets."""
    rows = len(matrix)
    image = np.zeros(rows * max(width, 32), np.uint8)
    for row in range(rows):
        for piece in range(2):
            place = row // 8 * 8 * width + row % 8 * width + piece * 16
            if not width:
                place = row // 8 * 256 + piece * 128 + row % 8 * 16
            put(image, place, width, matrix[row, 8 * piece : 8 * piece + 8])
    return (image, 128, 256) if not width else (image, 16, 8 * width)


def along_rows(matrix: np.ndarray, width: int) -> tuple[np.ndarray, int, int]:
    """A matrix (rows, 16) in shared memory, neighbours in M or N side by side; its leading and stride offsets."""
    rows = len(matrix)
    wide = max(width, 16) // 2  # elements of a line
    blocks = -(-rows // wide)
    image = np.zeros(blocks * 16 * max(width, 16), np.uint8)
    for k in range(16):
        for piece in range(rows // 8):
            block, inner = divmod(piece * 8, wide)
            place = block * 16 * max(width, 16) + k * max(width, 16) + inner * 2
            put(image, place, width, np.ascontiguousarray(matrix[8 * piece : 8 * piece + 8, k]))
    line = max(width, 16)
    # Without a swizzle the two offsets change places.
    return (image, 16 * line, 8 * line) if width else (image, 8 * line, 16 * line)


def operands(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A (64, 16) and B (16 columns, 16) as raw 16-bit elements, and their values."""
    random = np.random.default_rng(5)
    a, b = (random.integers(-8, 9, (rows, 16)).astype(np.float32) for rows in (64, 16))
    if kind == "bf16":
        raw = [(each.view(np.uint32) >> 16).astype(np.uint16) for each in (a, b)]
    else:
        raw = [each.astype(np.float16).view(np.uint16) for each in (a, b)]
    return raw[0], raw[1], a, b


def product(entry: str, a, b, width: int) -> np.ndarray:
    (a_image, *a_offsets), (b_image, *b_offsets) = a, b
    arguments = a_image, len(a_image), b_image, len(b_image), np.zeros((64, 16), np.float32)
    offsets = *a_offsets, *b_offsets
    done = launch(ptx(), entry, 1, 128, *arguments, *offsets, MODES[width], shared=len(a_image) + len(b_image) + 1024)
    assert done.findings == ()
    return done.arrays[2]


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize(("entry", "start", "sign"), [("plain", 1, 1), ("fresh", 0, 1), ("negative", 1, -1)])
def test_a_product_with_rows_along_k(entry: str, start: int, sign: int, width: int):
    a, b, a_values, b_values = operands("bf16" if entry == "plain" else "f16")
    result = product(entry, along_k(a, width), along_k(b, width), width)
    np.testing.assert_array_equal(result, start + sign * a_values @ b_values.T)


@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_a_product_of_turned_matrices(width: int):
    a, b, a_values, b_values = operands("f16")
    result = product("turned", along_rows(a, width), along_rows(b, width), width)
    np.testing.assert_array_equal(result, 1 + a_values @ b_values.T)


def test_a_product_with_one_operand_in_registers():
    a, b, a_values, b_values = operands("f16")
    image, *_ = along_k(b, 0)
    done = launch(ptx(), "from_registers", 1, 128, a.view(np.uint32), image, np.zeros((64, 16), np.float32))
    np.testing.assert_array_equal(done.arrays[2], a_values @ b_values.T)
    assert done.findings == ()


def test_two_warpgroups_of_many_blocks_multiply_by_themselves():
    a, b, a_values, b_values = operands("f16")
    image = np.concatenate([along_k(a, 0)[0], along_k(b, 0)[0]])
    done = launch(ptx(), "again", 3, 256, image, np.zeros(256 * 8, np.float32))
    assert not {kind for kind, _ in outermost(done)} & {"overwritten-stage", "missing-proxy-fence"}
    assert done.arrays[1].reshape(2, -1).sum() == pytest.approx(2 * 2 * (a_values @ b_values.T).sum())


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        ({"BEFORE": "__syncthreads();", "FENCE": "fence();"}, "overwritten-stage", "// overwrites"),
        (
            {"BEFORE": "wait_products<1>(); __syncthreads();", "FENCE": "fence();"},
            "overwritten-stage",
            "// overwrites",
        ),
        ({"BEFORE": "wait_products<0>(); __syncthreads();", "FENCE": ""}, "missing-proxy-fence", "described(tile, 128"),
    ],
)
def test_stages_that_wgmma_still_reads_are_found(words: dict[str, str], kind: str, text: str):
    source = SOURCE
    for word, value in words.items():
        source = source.replace(word, value)
    a, b, *_ = operands("f16")
    image = np.concatenate([along_k(a, 0)[0], along_k(b, 0)[0]])
    done = launch(compiled(source, "sm_90a"), "again", 1, 128, image, np.zeros(128 * 8, np.float32))
    lines = source.splitlines()
    assert {found for found, _ in outermost(done)} == {kind}
    start = next(n for n, line in enumerate(lines, 1) if "void again(" in line)
    expected = next(n for n, line in enumerate(lines, 1) if n > start and text in line)
    assert {abs(line - expected) <= 2 for _, line in outermost(done)} == {True}


def test_the_right_twin_says_nothing():
    a, b, *_ = operands("f16")
    image = np.concatenate([along_k(a, 0)[0], along_k(b, 0)[0]])
    done = launch(ptx(), "again", 1, 128, image, np.zeros(128 * 8, np.float32))
    assert done.findings == ()


def test_a_warpgroup_that_does_not_come_as_a_whole_is_found():
    done = launch(ptx(), "half_of_a_group", 1, 128, np.zeros(2560, np.uint8), np.zeros(128, np.float32))
    assert {kind for kind, _ in outermost(done)} == {"inactive-lane"}
    assert "warpgroup" in done.findings[0].message


BYTES = (
    HOPPER
    + WGMMA
    + r"""
extern "C" __global__ void bytes(const unsigned char* a, const unsigned char* b, float* c) {
    __shared__ alignas(1024) unsigned char tile[2048 + 256];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = a[i];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[2048 + i] = b[i];
    fence();
    __syncthreads();
    float d[4] = {};
    warps_ready();
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.TYPES {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(described(tile, 128, 256, 0)), "l"(described(tile + 2048, 128, 256, 0)));
    commit_products();
    wait_products<0>();
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; ++i) c[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}
"""
)


def of_bytes(types: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of raw 8-bit floats, (64, 32) and (8, 32)."""
    images = (along_k(np.ascontiguousarray(each).view(np.uint16), 0)[0] for each in (a, b))
    source = BYTES.replace("TYPES", types)
    done = launch(compiled(source, "sm_90a"), "bytes", 1, 128, *images, np.zeros((64, 8), np.float32))
    assert done.findings == ()
    return done.arrays[2]


@pytest.mark.parametrize("types", ["e4m3.e4m3", "e5m2.e5m2", "e4m3.e5m2"])
def test_a_product_of_8_bit_floats(types: str):
    random = np.random.default_rng(6)
    # Whole numbers up to 4, whose sums are exact in the bits that are kept.
    numbers = {"e4m3": [0x00, 0x38, 0x40, 0x44, 0x48, 0xB8], "e5m2": [0x00, 0x3C, 0x40, 0x42, 0x44, 0xBC]}
    values = np.array([0, 1, 2, 3, 4, -1], np.float32)
    chosen = [random.integers(0, 6, (rows, 32)) for rows in (64, 8)]
    a, b = (np.array(numbers[kind], np.uint8)[at] for kind, at in zip(types.split("."), chosen, strict=True))
    np.testing.assert_array_equal(of_bytes(types, a, b), values[chosen[0]] @ values[chosen[1]].T)


def test_sums_of_8_bit_floats_keep_14_bits():
    a, b = np.zeros((64, 32), np.uint8), np.zeros((8, 32), np.uint8)
    a[:, 0], b[:, 0] = 0x78, 0x70  # 256 and 128
    a[:, 1], b[:, 1] = 0x38, 0x40  # 1 and 2, less than a unit of 2**15 with 13 bits behind the point
    a[:, 2], b[:, 2] = 0x48, 0x40  # 4 and 2, two units
    np.testing.assert_array_equal(of_bytes("e4m3.e4m3", a, b), np.full((64, 8), 2.0**15 + 8, np.float32))


def test_float16_sums_of_8_bit_floats_are_rounded_from_all_that_was_added():
    """With 13 bits behind the sum's point, as float32 sums have, the last term would be lost, and a tie left."""
    product = bind_product("f16", "e4m3", "e4m3", "f16", 90, warpgroup=True)
    assert product is not None
    a, b = np.zeros((1, 1, 32), np.uint8), np.full((1, 32, 1), 0x38, np.uint8)
    a[..., :16] = 0x38  # sixteen times 1; numbers above 16 are 2**-6 apart
    a[..., 16], b[:, 16] = 0x10, 0x28  # 2**-5 and 2**-2
    a[..., 17], b[:, 17] = 0x10, 0x08  # 2**-5 and 2**-6
    assert product(a, b, np.zeros((1, 1, 1), np.uint16)).view(np.float16) == 16 + 2**-6
    a[..., 17] = 0
    assert product(a, b, np.zeros((1, 1, 1), np.uint16)).view(np.float16) == 16


def test_forms_that_are_not_run_are_named():
    source = (
        HOPPER
        + WGMMA
        + r"""
    extern "C" __global__ void bits() {
        int d[4] = {};
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%0, %1, %2, %3}, %4, %5, 1;"
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(0ull), "l"(0ull));
    }"""
    )
    with pytest.raises(NeedsGpu, match="b1"):
        launch(compiled(source, "sm_90a"), "bits", 1, 128)
    assert line_of(source, "wgmma.mma_async")
