// Bias and GELU (tanh form) on a half-precision matrix: y[r, c] = gelu(x[r, c] + bias[c]), the epilogue between the
// two matrix products of a transformer's MLP. Arithmetic in float32, one rounding at the end.
//
// What limits it: memory bandwidth in principle, at 4 bytes of compulsory traffic an element (bias stays in cache).
// With one 2-byte element per thread a warp asks for only 64 bytes at a time, so that the number of bytes in flight
// and the instructions per byte (address, remainder by `cols`, tanh) come into play before DRAM does.

#include <cuda_fp16.h>

__device__ __forceinline__ float gelu(float x) {
    const float k = 0.7978845608028654f;  // sqrt(2 / pi)
    return 0.5f * x * (1.0f + tanhf(k * (x + 0.044715f * x * x * x)));
}

extern "C" __global__ void bias_gelu(const __half* x, const __half* bias, __half* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = __half2float(x[i]) + __half2float(bias[i % cols]);
        y[i] = __float2half(gelu(v));
    }
}
