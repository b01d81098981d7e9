// One step of a nine-point stencil on a float32 grid (3 x 3 smoothing; the border is copied), one point per thread.
//
// What limits it: memory bandwidth. The compulsory traffic is 8 bytes a point, one read and one write. Each point is
// loaded by nine threads, and whether the other eight loads stay in L1 depends on the shape of the block: a wide
// block wastes fewer bytes at the ends of its rows, a tall one reuses more rows. The nine loads per point also make
// this a test of load issue: neighbours along a column could share them.

namespace stencil {

__global__ void nine_point(const float* in, float* out, int height, int width, float center, float edge, float corner) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }

    int i = y * width + x;
    if (x == 0 || x == width - 1 || y == 0 || y == height - 1) {
        out[i] = in[i];
        return;
    }

    float edges = in[i - width] + in[i - 1] + in[i + 1] + in[i + width];
    float corners = in[i - width - 1] + in[i - width + 1] + in[i + width - 1] + in[i + width + 1];
    out[i] = center * in[i] + edge * edges + corner * corners;
}

}  // namespace stencil
