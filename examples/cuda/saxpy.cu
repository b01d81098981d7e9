// z = alpha * x + y in float32, written to run at the speed of memory: 16-byte accesses, all loads of a thread in
// flight before its first store, and cache hints that say every byte is used once.
//
// What limits it: memory bandwidth, at 12 bytes of compulsory traffic an element for 2 flops, and nothing else. There
// is no reuse to find, so the best that any variant can do is the rate at which the device streams.

constexpr int THREADS = 256;
constexpr int VECTORS = 4;  // 16-byte vectors of x and of y per thread and step

// x, y and z: 16-byte aligned. Any grid is right; (n / 4) / (THREADS * VECTORS) blocks, rounded up, take one step each.
extern "C" __global__ void __launch_bounds__(THREADS)
saxpy(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, float alpha, long long n) {
    const float4* x4 = reinterpret_cast<const float4*>(x);
    const float4* y4 = reinterpret_cast<const float4*>(y);
    float4* z4 = reinterpret_cast<float4*>(z);
    const long long vectors = n / 4;
    const long long step = (long long)THREADS * VECTORS;

    for (long long base = blockIdx.x * step + threadIdx.x; base < vectors; base += gridDim.x * step) {
        float4 a[VECTORS];
        float4 b[VECTORS];
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            if (base + k * THREADS < vectors) {
                a[k] = __ldcs(x4 + base + k * THREADS);
                b[k] = __ldcs(y4 + base + k * THREADS);
            }
        }
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            if (base + k * THREADS < vectors) {
                float4 r = make_float4(fmaf(alpha, a[k].x, b[k].x), fmaf(alpha, a[k].y, b[k].y),
                                       fmaf(alpha, a[k].z, b[k].z), fmaf(alpha, a[k].w, b[k].w));
                __stcs(z4 + base + k * THREADS, r);
            }
        }
    }

    const long long tail = vectors * 4 + threadIdx.x;
    if (blockIdx.x == 0 && tail < n) {
        z[tail] = fmaf(alpha, x[tail], y[tail]);
    }
}
