from pathlib import Path

import pytest

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of, read_source
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.mutations import MOST_OF_A_KIND, Bug, find_mutations

EXAMPLES = Path(__file__).parents[3] / "examples"
KERNELS = sorted(p for p in EXAMPLES.glob("*/*") if p.is_file() and find_kernels(p.read_text(), p))

CUDA = """
__device__ float helper(float x, float scale) { return x * scale; }

__global__ void reduce(const float* x, int* counts, float* y, int rows, int cols, float eps) {
    __shared__ float s[8][9];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float sum = 0.0f, peak = -INFINITY;
    for (int j = 0; j < cols; j += 8) {
        s[threadIdx.y][threadIdx.x] = (j + 1 < cols && i > 2) ? x[i * cols + j] : 0.0f;
        __syncthreads();
        sum += s[threadIdx.x][threadIdx.y];
        peak = fmaxf(peak, sum);
    }
    atomicAdd(&counts[i], 1);
    y[i] = sum / (peak + eps);
}

void host(int n) { if (n < 3) n = 4; }
"""

TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, stride_m, stride_n, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    online = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_m + cols * stride_n, mask=(cols < n) & (row < 9), other=0.0)
        total += x
        online = online * 2 + tl.sum(x, axis=0)
    tl.debug_barrier()
    tl.atomic_add(y_ptr + row, tl.sum(total, axis=0) / n + eps, mask=row < n)

def host(n):
    return n < 3
"""


def planted(text: str, language: Language) -> dict[Bug, list[str]]:
    name = Path("k.cu" if language is Language.CUDA else "k.py")
    found: dict[Bug, list[str]] = {}
    for mutation in find_mutations(SourceFile(name, text), language):
        found.setdefault(mutation.bug, []).append(mutation.what)
    return found


def test_every_kind_is_planted_in_cuda():
    found = planted(CUDA, Language.CUDA)
    assert set(found) == set(Bug)
    assert "`i >= rows` → `false`" in found[Bug.DROPPED_GUARD]
    assert "`i > 2` → `true`" in found[Bug.DROPPED_GUARD]
    assert found[Bug.DROPPED_BARRIER] == ["`__syncthreads();` left out"]
    assert found[Bug.DROPPED_TAIL] == ["`j < cols` → `j + (8) <= cols`"]
    assert found[Bug.NARROW_ACCUMULATOR] == ["`sum += s[threadIdx.x][threadIdx.y]` in bfloat16"]
    assert "`s[threadIdx.y][threadIdx.x]` → `s[threadIdx.x][threadIdx.y]`" in found[Bug.SWAPPED_INDEX]
    assert found[Bug.WRONG_STRIDE] == ["`cols` → `rows` in `i * cols`"]
    assert found[Bug.LOST_ATOMIC] == ["`atomicAdd(&counts[i], 1)` → `counts[i] += 1`"]
    assert "`peak = -INFINITY` → `0`" in found[Bug.WRONG_START]
    assert "`peak + eps` → `peak`" in found[Bug.DROPPED_TERM]
    assert "`x * scale` → `x`" in found[Bug.DROPPED_TERM], "device functions count"


def test_every_kind_that_triton_knows_is_planted():
    found = planted(TRITON, Language.TRITON)
    assert set(found) == set(Bug) - {Bug.UNINITIALISED_SHARED, Bug.SWAPPED_INDEX}
    assert "`mask=(cols < n) & (row < 9)` left out" in found[Bug.DROPPED_GUARD]
    assert "`(row < 9)` left out" in found[Bug.DROPPED_GUARD]
    assert found[Bug.WRONG_STRIDE][0] == "`stride_m` → `stride_n` in `row * stride_m`"
    assert found[Bug.WRONG_START] == ["`total` begins with 1"], "an online sum forgets where it began"


@pytest.mark.parametrize(("text", "language"), [(CUDA, Language.CUDA), (TRITON, Language.TRITON)])
def test_host_code_is_left_alone(text, language):
    source = SourceFile(Path("k.cu" if language is Language.CUDA else "k.py"), text)
    assert all(mutation.function != "host" for mutation in find_mutations(source, language))


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_each_bug_is_one_other_text(path):
    source = read_source(path)
    language = language_of(path, source.text)
    assert language is not None
    found = find_mutations(source, language)
    texts = {mutation.applied_to(source.text) for mutation in found}
    assert len(found) >= 5
    assert len(texts) == len(found)
    assert source.text not in texts
    kinds = [(mutation.function, mutation.bug) for mutation in found]
    assert max(map(kinds.count, kinds)) <= MOST_OF_A_KIND
    for mutation in found:
        before = source.text.encode()[: mutation.edits[0].span.start].count(b"\n") + 1
        assert mutation.line <= before


def test_text_that_does_not_parse_has_no_bugs_to_plant():
    source = SourceFile(Path("k.cu"), "__global__ void broken(int n { if (n < ")
    assert find_mutations(source, Language.CUDA) == ()


def test_comments_among_arguments_are_no_arguments():
    text = """import triton
import triton.language as tl


@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(
        x + i,  # a row
        mask=i < n,  # its end
        other=0.0,
        # nothing follows
    )
    tl.store(y + i, tl.where(
        i < n,  # here
        v,
        0.0,
    ), mask=i < n)
"""
    source = SourceFile(Path("k.py"), text)
    found = find_mutations(source, Language.TRITON)
    assert {Bug.DROPPED_GUARD, Bug.WRONG_FILL} <= {mutation.bug for mutation in found}
    for mutation in found:
        compile(mutation.applied_to(text), "k.py", "exec")


ONLINE_TRITON = """import triton
import triton.language as tl


@triton.jit
def k(x):
    d = 0.0
    m = 0.0
    for i in range(4):
        v = tl.load(x + i)
        d = d * tl.exp(m - v) + 1
        d *= tl.exp(v)
    tl.store(x, d)
"""
ONLINE_CUDA = """__global__ void k(float* x) {
  float d = 0.f;
  for (int i = 0; i < 4; i++) {
    d = d * expf(x[i]) + 1.f;
    d *= expf(x[i]);
  }
  x[0] = d;
}
"""


def test_a_missing_rescale_is_planted():
    of_triton = {"`d` for `d * tl.exp(m - v)`", "`d *= tl.exp(v)` left out"}
    assert of_triton <= set(planted(ONLINE_TRITON, Language.TRITON)[Bug.DROPPED_TERM])
    of_cuda = {"`d` for `d * expf(x[i])`", "`d *= expf(x[i])` left out"}
    assert of_cuda <= set(planted(ONLINE_CUDA, Language.CUDA)[Bug.DROPPED_TERM])


def test_comments_among_parameters_are_no_parameters():
    text = """import triton
import triton.language as tl

@triton.jit
def k(
    x_ptr,  # input, of n rows
    stride,  # of a row
    n,  # rows
    cols,  # in a row
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < cols) * n, mask=i < cols)
"""
    found = list(find_mutations(SourceFile(Path("k.py"), text), Language.TRITON))
    assert any("`stride` → " in bug.what for bug in found)
    assert not any("#" in bug.what for bug in found)
