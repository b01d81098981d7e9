// How far an output is from the truth, in one pass over both: the same measure as `runner/workers/comparison.py`, whose
// words say what it means. Compiled once per architecture, without headers: those of the narrow types alone would take
// longer than all of this.

struct Float16 {
    unsigned short bits;
};
struct BFloat16 {
    unsigned short bits;
};

__device__ double widened(double value) { return value; }
__device__ double widened(float value) { return value; }
__device__ double widened(BFloat16 value) { return __uint_as_float(unsigned(value.bits) << 16); }
__device__ double widened(Float16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}

// As far as rounding to T decides whether it becomes infinite: narrow types are rounded by way of float.
template <typename T>
__device__ double rounded(double value) { return float(value); }
template <>
__device__ double rounded<double>(double value) { return value; }

// Units between a value and the exact one. `beyond`: where rounding gives infinity; `floor`: the unit of an exact 0.
template <typename T>
__device__ double units(double actual, double exact, double eps, double floor, double beyond) {
    const double infinity = __longlong_as_double(0x7FF0000000000000);
    const double size = fabs(rounded<T>(exact));
    if (!(size < beyond)) {
        const bool agree = isnan(exact) ? isnan(actual) : actual == copysign(infinity, exact);
        return agree ? 0.0 : infinity;
    }
    const double unit = fmax(__dadd_rn(__dmul_rn(fabs(exact), eps), floor), 1e-300);
    const double error = fabs(actual - exact) / unit;
    return error <= 1.7976931348623157e308 ? error : infinity;
}

// For each block: `figures` gets its largest error and the sum of squared errors, `places` how many exceed `allowed`
// and the first of those (`count` if none does).
template <typename T>
__device__ void measure(const T* actual, const double* exact, long long count, double eps, double floor, double beyond,
                        double allowed, double* figures, long long* places) {
    constexpr int together = 4;  // loads under way at once
    double largest = 0.0, squares = 0.0;
    long long wrong = 0, first = count;
    const long long tile = (long long)together * blockDim.x;
    for (long long start = blockIdx.x * tile + threadIdx.x; start < count; start += gridDim.x * tile) {
        T found[together];
        double wanted[together];
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const long long place = min(start + (long long)k * blockDim.x, count - 1);
            found[k] = actual[place];
            wanted[k] = exact[place];
        }
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const long long place = start + (long long)k * blockDim.x;
            if (place < count) {
                const double error = units<T>(widened(found[k]), wanted[k], eps, floor, beyond);
                largest = fmax(largest, error);
                squares += error * error;
                if (error > allowed) {
                    ++wrong;
                    first = min(first, place);
                }
            }
        }
    }
    __shared__ double all_largest[32], all_squares[32];
    __shared__ long long all_wrong[32], all_first[32];
    for (int offset = 16; offset > 0; offset /= 2) {
        largest = fmax(largest, __shfl_down_sync(~0u, largest, offset));
        squares += __shfl_down_sync(~0u, squares, offset);
        wrong += __shfl_down_sync(~0u, wrong, offset);
        first = min(first, __shfl_down_sync(~0u, first, offset));
    }
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        all_largest[warp] = largest;
        all_squares[warp] = squares;
        all_wrong[warp] = wrong;
        all_first[warp] = first;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int other = 1; other < blockDim.x / 32; ++other) {
            largest = fmax(largest, all_largest[other]);
            squares += all_squares[other];
            wrong += all_wrong[other];
            first = min(first, all_first[other]);
        }
        figures[2 * blockIdx.x] = largest;
        figures[2 * blockIdx.x + 1] = squares;
        places[2 * blockIdx.x] = wrong;
        places[2 * blockIdx.x + 1] = first;
    }
}

#define MEASURE(NAME, TYPE)                                                                                           \
    extern "C" __global__ void NAME(const TYPE* actual, const double* exact, long long count, double eps,             \
                                    double floor, double beyond, double allowed, double* figures,                     \
                                    long long* places) {                                                              \
        measure(actual, exact, count, eps, floor, beyond, allowed, figures, places);                                  \
    }
MEASURE(distance_float64, double)
MEASURE(distance_float32, float)
MEASURE(distance_float16, Float16)
MEASURE(distance_bfloat16, BFloat16)
