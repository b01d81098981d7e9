"""Rules about speed: hints from the machine code and from what the emulator counts. They never fail a check by default.

Each has a threshold below which it is silent, so that a good kernel gets no hint at all.
"""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule
from kernel_lsp.source.kernel import Language


def _hint(
    number: int,
    name: str,
    summary: str,
    needs: Needs = Needs.EMULATING,
    *,
    what: str,
    why: str,
    before: str,
    after: str,
    fix: str,
    in_triton: str | None = None,
) -> Rule:
    return Rule(
        id=f"KL{number:03}",
        name=name,
        group=Group.PERFORMANCE,
        severity=Severity.WARNING,
        needs=needs,
        summary=summary,
        what=what,
        why=why,
        before=before,
        after=after,
        fix=fix,
        fixes={Language.TRITON: in_triton} if in_triton else {},
    )


UNCOALESCED = _hint(
    30,
    "uncoalesced-access",
    "A warp's access is spread over more memory than it uses.",
    what="A load or store of global memory that moves at least twice the 32-byte sectors its bytes would fill, on "
    "average over the launch, where these make up a tenth or more of all sectors of the kernel. In Triton only "
    "beyond 17 sectors a request, which a thread's own 16 bytes explain.",
    why="Memory moves whole sectors. 32 threads that read 4 bytes each, a row apart, move 32 sectors and use an eighth "
    "of each.",
    before="float v = x[threadIdx.x * cols + col];  // neighbours lie a row apart",
    after="float v = x[row * cols + threadIdx.x];  // neighbours lie side by side",
    fix="Let neighbouring threads take neighbouring elements: swap the roles of the indices, or go through a shared "
    "tile.",
)

BANK_CONFLICT = _hint(
    31,
    "bank-conflict",
    "Threads of a warp use different words of one shared-memory bank.",
    what="A load or store of shared memory that takes at least twice the passes it would need without conflicts, on "
    "average over the launch, where the passes lost are a tenth or more of all of the kernel's.",
    why="A bank gives one word in a pass. A column of a 32-wide tile of floats lies in one bank: 32 passes in place of "
    "one.",
    before="__shared__ float tile[32][32];\ny[i] = tile[threadIdx.x][threadIdx.y];",
    after="__shared__ float tile[32][33];\ny[i] = tile[threadIdx.x][threadIdx.y];",
    fix="Pad the row by one word, or permute (swizzle) the columns by the row.",
)

SPILL = _hint(
    32,
    "register-spill",
    "The kernel does not fit into its registers and keeps values in local memory.",
    Needs.COMPILING,
    what="16 bytes of spills a thread or more, as ptxas counts them.",
    why="A spilled value is stored to and loaded from memory. In an inner loop that costs more than the occupancy "
    "gained by fewer registers.",
    before="__global__ void __launch_bounds__(1024, 2) gemm(...)  // leaves 32 registers a thread",
    after="__global__ void __launch_bounds__(256, 2) gemm(...)   // leaves 128",
    fix="Loosen `__launch_bounds__` or `--maxrregcount`, keep fewer elements per thread, unroll less.",
    in_triton="Take smaller blocks or a larger `num_warps`, or raise `maxnreg` where one is set.",
)

OCCUPANCY = _hint(
    33,
    "limited-occupancy",
    "Little less of one resource would let clearly more warps run.",
    Needs.COMPILING,
    what="An occupancy of at most half, where saving no more than 8 registers a thread or a tenth of the shared memory "
    "raises it by a quarter of itself or more; and one below half because blocks are that small.",
    why="A kernel that waits for memory hides the wait behind other warps. Resources are handed out in units, so "
    "occupancy falls in cliffs, and just past a cliff it is cheap to get back.",
    before="// 88 registers, 256 threads: 2 blocks, 25 %",
    after="__launch_bounds__(256, 3)  // 80 registers: 3 blocks, 38 %",
    fix="Ask for the next cliff with `__launch_bounds__(threads, blocks)`, or change what the finding names.",
    in_triton="Launch with another `num_warps` or with `maxnreg`, or take smaller blocks.",
)

LOCAL_ARRAY = _hint(
    34,
    "local-array",
    "An array of each thread lies in memory, because its index is not known to the compiler.",
    Needs.COMPILING,
    what="16 bytes of stack a thread or more in a kernel that spills nothing, without those of `sin`, `tan`, `printf`.",
    why="Registers have no addresses. An array indexed by a variable is kept in local memory, behind the caches.",
    before="float v[8];\nfor (int k = 0; k < count; ++k) sum += v[k];  // count is not a constant",
    after="float v[8];\n#pragma unroll\nfor (int k = 0; k < 8; ++k) if (k < count) sum += v[k];",
    fix="Give the loop a constant length and unroll it, or keep the array in shared memory.",
)

NARROW = _hint(
    35,
    "narrow-access",
    "Threads move fewer than 4 bytes each where they could move up to 16.",
    what="In CUDA, a load or store of 1 or 2 bytes a thread whose neighbours lie side by side, where such accesses are "
    "a quarter or more of the kernel's requests to global memory.",
    why="A warp then asks for 32 or 64 bytes with an instruction that could ask for 512; the number of requests in "
    "flight, and not the memory, becomes the limit.",
    before="const __half* x;\nfloat v = __half2float(x[i]);",
    after="const __half2* x2;\nfloat2 v = __half22float2(x2[i]);  // or 8 halves through a uint4",
    fix="Give each thread 2 to 8 neighbouring elements and load them as one vector.",
)

DIVERGENCE = _hint(
    36,
    "divergence",
    "Most threads of a warp wait while a few work.",
    what="A line on which, on average, fewer than half of the threads with work in a warp are active, and that takes a "
    "tenth or more of the kernel's instructions. Those that leave before its first access of memory have no work.",
    why="A warp executes both sides of a branch one after the other, so the idle half costs as much as the busy one.",
    before="if (threadIdx.x % 2 == 0) heavy(x[i]);",
    after="if (threadIdx.x < blockDim.x / 2) heavy(x[2 * i]);",
    fix="Let whole warps take the same branch: renumber the work, or sort it by the branch it takes.",
)

EXCESS_TRAFFIC = _hint(
    37,
    "excess-traffic",
    "The kernel moves its data many times over.",
    what="Global memory traffic of 8 times the compulsory minimum (each input read once, each output written once) or "
    "more, over all of the workload's launches of a case.",
    why="What is read again comes from the caches at best, and at larger sizes from memory: the time grows with it.",
    before="for (int k = 0; k < n; ++k) acc += a[row * n + k] * b[k * n + col];  // each element n times",
    after="// tiles of a and b in shared memory: each element n / TILE times",
    fix="Keep what is used again in registers or a shared tile, and do more of the work in one pass.",
)

SHALLOW_PIPELINE = _hint(
    38,
    "shallow-pipeline",
    "The stages of bulk copies keep too few bytes in flight for the memory.",
    what="Stages that a block fills again and again, whose bytes, over all blocks of a multiprocessor, are less than "
    "half of what the GPU's memory has under way in a microsecond, where shared memory has room for another stage.",
    why="A memory is busy while its bandwidth times its latency are under way (Little's law): 25 KiB for each "
    "multiprocessor of an H100, 36 KiB of an H200. With fewer, copies are waited for.",
    before="constexpr int STAGES = 2;  // of 2 KiB, in one block of a multiprocessor",
    after="constexpr int STAGES = 16;",
    fix="Take more or larger stages, or let more blocks be resident.",
)

RULES = (
    UNCOALESCED,
    BANK_CONFLICT,
    SPILL,
    OCCUPANCY,
    LOCAL_ARRAY,
    NARROW,
    DIVERGENCE,
    EXCESS_TRAFFIC,
    SHALLOW_PIPELINE,
)
