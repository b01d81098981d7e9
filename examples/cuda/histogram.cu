// Histogram of int32 values over 256 bins: each block counts into shared memory and adds its bins to the result at
// the end. Values outside 0..255 are not counted.
//
// What limits it: either memory bandwidth (4 bytes of compulsory traffic a value) or atomics on shared memory,
// depending on the data. With values spread evenly few lanes of a warp meet in one bin; where few bins take most of
// the values they queue up. Every block also pays 256 global atomics, so that too many blocks cost as well.

#define BINS 256

__global__ void histogram(const int* values, int* counts, int n) {
    __shared__ int bins[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        bins[b] = 0;
    }
    __syncthreads();

    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        int v = values[i];
        if (v >= 0 && v < BINS) {
            atomicAdd(&bins[v], 1);
        }
    }
    __syncthreads();

    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        atomicAdd(&counts[b], bins[b]);
    }
}
