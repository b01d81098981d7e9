// y = A x in float64 for a sparse matrix in compressed rows (CSR), one thread per row.
//
// What limits it: memory, but not its bandwidth alone. Neighbouring threads walk rows that lie apart, so that a warp's
// loads of values and indices are not coalesced; a warp takes as long as its longest row; and x is gathered. A warp for
// each row, or work that is cut into pieces of one length, fixes the first two. The compulsory traffic is 12 bytes for
// each nonzero element.

extern "C" __global__ void spmv(const int* __restrict__ row_starts, const int* __restrict__ columns,
                                const double* __restrict__ values, const double* __restrict__ x,
                                double* __restrict__ y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }

    double sum = 0.0;
    for (int k = row_starts[row]; k < row_starts[row + 1]; k++) {
        sum += values[k] * x[columns[k]];
    }
    y[row] = sum;
}
