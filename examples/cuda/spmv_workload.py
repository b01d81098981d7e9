"""y = A x in float64 for a sparse matrix in compressed rows (CSR) whose rows differ in length; some of them are empty.

Limited by memory: 12 bytes for each nonzero element, and what a gather from x brings in vain (see `spmv.cu`).
"""

import torch

CASES = [
    dict(rows=70, cols=50, nonzero=900),
    dict(rows=1 << 20, cols=1 << 20, nonzero=1 << 24),
    dict(rows=1 << 18, cols=5000, nonzero=1 << 23),
    dict(rows=40_001, cols=300_007, nonzero=5_000_003),
]
CONTRACT = dict(contiguous=True, aligned=16, sorted=("row_starts",))


def inputs(rows, cols, nonzero):
    cuts = torch.randint(nonzero + 1, (rows - 1,), device="cuda", dtype=torch.int32).sort().values
    ends = [torch.full((1,), end, device="cuda", dtype=torch.int32) for end in (0, nonzero)]
    row_starts = torch.cat([ends[0], cuts, ends[1]])
    columns = torch.randint(cols, (nonzero,), device="cuda", dtype=torch.int32)
    values = torch.randn(nonzero, device="cuda", dtype=torch.float64)
    return row_starts, columns, values, torch.randn(cols, device="cuda", dtype=torch.float64)


def reference(row_starts, columns, values, x):
    rows = len(row_starts) - 1
    of_row = torch.repeat_interleave(torch.arange(rows, device=x.device), row_starts.diff(), output_size=len(values))
    return x.new_zeros(rows).index_add_(0, of_row, values * x[columns])


def launch(module, row_starts, columns, values, x):
    threads = 128
    rows = len(row_starts) - 1
    y = torch.empty(rows, device=x.device, dtype=x.dtype)
    module.spmv[((rows + threads - 1) // threads,), (threads,)](row_starts, columns, values, x, y, rows)
    return y
