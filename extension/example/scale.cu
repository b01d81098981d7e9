// y = factor * x, one element a thread. Whether there is an x[i] for every thread, only `if (i < n)` knows.

extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = factor * x[i];
}
