// One sweep of Jacobi's method for Poisson's equation on a float32 grid, one point per thread; the border is kept.
//
// What limits it: memory bandwidth, if the neighbours' loads hit L1: 12 bytes a point and sweep (the old value, the
// right-hand side, the new value) for 5 flops. The workload makes several sweeps, each of which reads what the one
// before has written; a tile that makes two of them before it goes back to memory would halve the traffic.

extern "C" __global__ void jacobi_sweep(const float* __restrict__ u, const float* __restrict__ f, float* __restrict__ out,
                                        int height, int width, float h2) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }

    int i = y * width + x;
    if (x == 0 || x == width - 1 || y == 0 || y == height - 1) {
        out[i] = u[i];
        return;
    }
    out[i] = 0.25f * (u[i - width] + u[i - 1] + u[i + 1] + u[i + width] - h2 * f[i]);
}
