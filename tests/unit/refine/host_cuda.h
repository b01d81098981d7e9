// Just enough of CUDA to run a kernel on the host: one thread for each device thread, blocks one after the other.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __constant__
#define __launch_bounds__(...)
using std::max, std::min;

struct dim3 { unsigned x = 1, y = 1, z = 1; };
static thread_local dim3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static std::unique_ptr<std::barrier<>> host_block;
static std::vector<std::unique_ptr<std::barrier<>>> host_warps;
static double host_exchange[1024];

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) double2 { double x, y; };

inline void __syncthreads() { host_block->arrive_and_wait(); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }

inline void __syncwarp() { host_warps[threadIdx.x / 32]->arrive_and_wait(); }

// Every lane of the warp takes part, as the full mask says.
template <typename T> T host_exchanged(T value, unsigned from) {
    std::barrier<>& warp = *host_warps[threadIdx.x / 32];
    host_exchange[threadIdx.x] = value;
    warp.arrive_and_wait();
    const T other = static_cast<T>(host_exchange[from]);
    warp.arrive_and_wait();
    return other;
}
template <typename T> T __shfl_xor_sync(unsigned, T value, int lanes) {
    return host_exchanged(value, threadIdx.x ^ lanes);
}
template <typename T> T __shfl_up_sync(unsigned, T value, int lanes) {
    return host_exchanged(value, threadIdx.x % 32 < lanes ? threadIdx.x : threadIdx.x - lanes);
}
template <typename T> T __shfl_sync(unsigned, T value, int lane) {
    return host_exchanged(value, threadIdx.x / 32 * 32 + lane);
}

namespace cooperative_groups {
template <typename T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <typename T> struct greater { T operator()(T a, T b) const { return a > b ? a : b; } };
}

inline float atomicAdd(float* to, float value) { return std::atomic_ref(*to).fetch_add(value); }

template <typename Kernel> void host_launch(dim3 grid, dim3 block, Kernel kernel) {
    gridDim = grid;
    blockDim = block;
    const int size = block.x * block.y;
    for (unsigned b = 0; b < grid.x * grid.y; ++b) {
        host_block = std::make_unique<std::barrier<>>(size);
        host_warps.clear();
        for (int w = 0; w < size; w += 32) host_warps.push_back(std::make_unique<std::barrier<>>(std::min(32, size - w)));
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < unsigned(size); ++t)
            threads.emplace_back([=] {
                threadIdx = {t % block.x, t / block.x, 0};
                blockIdx = {b % grid.x, b / grid.x, 0};
                kernel();
            });
        for (std::thread& thread : threads) thread.join();
    }
}
