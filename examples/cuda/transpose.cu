// Matrix transpose through a 32 x 32 tile of shared memory, so that both the reads and the writes are coalesced.
//
// What limits it: memory bandwidth, one read and one write of every element and no arithmetic at all. The tile is
// read back by columns, which for 4-byte elements and rows of 32 puts all lanes of a warp into one shared-memory
// bank.

constexpr int TILE = 32;

// Launch with TILE x (a divisor of TILE) threads; grid.x covers the columns of `in`, grid.y its rows.
template <typename T>
__global__ void transpose(const T* __restrict__ in, T* __restrict__ out, int rows, int cols) {
    __shared__ T tile[TILE][TILE];

    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += blockDim.y) {
        if (x < cols && y + j < rows) {
            tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * cols + x];
        }
    }
    __syncthreads();

    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += blockDim.y) {
        if (x < rows && y + j < cols) {
            out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
        }
    }
}
