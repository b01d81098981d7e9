"""Rules about memory and threads, checked by the emulator at each access while it runs a workload."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule


def _rule(number: int, name: str, summary: str, *, what: str, why: str, before: str, after: str, fix: str) -> Rule:
    return Rule(
        id=f"KL{number:03}",
        name=name,
        group=Group.MEMORY,
        severity=Severity.ERROR,
        needs=Needs.EMULATING,
        summary=summary,
        what=what,
        why=why,
        before=before,
        after=after,
        fix=fix,
    )


OUT_OF_BOUNDS = _rule(
    10,
    "out-of-bounds",
    "An access lies outside the memory it belongs to.",
    what="A load, store or atomic whose address is in no tensor, past the shared memory of the block, or past a local "
    "array. The finding names the element, the nearest tensor and the first thread that did it. Also a box that a "
    "tensor copy stores at a negative place, which ends the kernel with `an illegal instruction was encountered`, or "
    "whose row ends past the tensor's memory, as pieces of 16 bytes are stored as a whole.",
    why="On a GPU such an access often lands in a neighbour's memory and goes unnoticed, until another allocation "
    "order turns it into a wrong result or `CUDA error: an illegal memory access was encountered`.",
    before="int i = blockIdx.x * blockDim.x + threadIdx.x;\ny[i] = 2.0f * x[i];  // the last block reaches past n",
    after="int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n) y[i] = 2.0f * x[i];",
    fix="Guard the access by the true size (`if (i < n)`; in Triton a `mask=`), and check the strides that are passed.",
)

MISALIGNED = _rule(
    11,
    "misaligned-access",
    "A wide access starts at an address that its width does not divide.",
    what="A load or store of 2, 4, 8 or 16 bytes whose address is not a multiple of that many bytes. Also a box of a "
    "tensor copy that begins at no multiple of 16 bytes in the innermost dimension, which ends the kernel with `an "
    "illegal instruction was encountered`.",
    why="The hardware does not split such an access: the kernel ends with `CUDA error: misaligned address`. It happens "
    "only on some inputs (a view that starts at an odd element, an odd row length), so tests seldom meet it.",
    before="float4 v = *reinterpret_cast<const float4*>(x + row * cols);  // cols may be odd",
    after="if (cols % 4 == 0) { /* float4 */ } else { /* one element at a time */ }",
    fix="Take the wide path only where base and stride allow it, or declare what callers guarantee in the workload's "
    "CONTRACT.",
)

UNINITIALISED_GLOBAL = _rule(
    12,
    "uninitialised-global",
    "Global memory is read that nothing has written.",
    what="A load from a tensor made by `torch.empty` (or past what was written of it) whose value is used.",
    why="`torch.empty` hands out whatever an earlier tensor left. The kernel is right when that happens to be zero, "
    "and wrong in production.",
    before="y = torch.empty_like(x)          # launch\natomicAdd(&y[i], value);         // kernel",
    after="y = torch.zeros_like(x)          # launch\natomicAdd(&y[i], value);         // kernel",
    fix="Write the element before it is read, or allocate with `torch.zeros`.",
)

UNINITIALISED_SHARED = _rule(
    13,
    "uninitialised-shared",
    "Shared memory is read that no thread of the block has written.",
    what="A load from `__shared__` memory before any thread of the block stored there.",
    why="Shared memory holds what the block before it left. Most often a guard kept some threads from storing their "
    "element, and the reduction after it adds garbage.",
    before="if (i < n) tile[threadIdx.x] = x[i];\n__syncthreads();\nsum += tile[threadIdx.x ^ 1];",
    after="tile[threadIdx.x] = i < n ? x[i] : 0.0f;\n__syncthreads();\nsum += tile[threadIdx.x ^ 1];",
    fix="Let every thread store, with the neutral element where there is no input.",
)

SHARED_RACE = _rule(
    14,
    "shared-race",
    "Two threads use the same shared memory with no barrier between them, and one of them writes.",
    what="Two accesses of different threads of a block to one location between two barriers, at least one a plain "
    "store; also through `cp.async` that was not waited for.",
    why="Which comes first is undefined. It may work for years while both threads share a warp, and break with another "
    "block size, compiler or GPU.",
    before="tile[threadIdx.x] = x[i];\ny[i] = tile[blockDim.x - 1 - threadIdx.x];",
    after="tile[threadIdx.x] = x[i];\n__syncthreads();\ny[i] = tile[blockDim.x - 1 - threadIdx.x];",
    fix="Put `__syncthreads()` (within a warp `__syncwarp()`) between writing and reading; in loops also before the "
    "next round's writes.",
)

GLOBAL_RACE = _rule(
    15,
    "global-race",
    "Two blocks write the same element without an atomic.",
    what="Plain stores of different blocks to one location, where they store different values or one block reads it.",
    why="Blocks run in no order; the last one wins, and another one wins tomorrow.",
    before="histogram[bin] += 1;",
    after="atomicAdd(&histogram[bin], 1);",
    fix="Use an atomic, give each block its own output and add those up, or make each element one block's.",
)

DIVERGENT_BARRIER = _rule(
    16,
    "divergent-barrier",
    "Not all threads of the block reach the barrier.",
    what="`__syncthreads()` that some threads of a block skip, by a branch around it or by returning early.",
    why="The behaviour is undefined: a hang on one GPU, on another threads that run on with half-written data.",
    before="if (i >= n) return;\ntile[threadIdx.x] = x[i];\n__syncthreads();",
    after="if (i < n) tile[threadIdx.x] = x[i];\n__syncthreads();\nif (i >= n) return;",
    fix="Move the barrier out of the branch, and return only after the last barrier.",
)

INACTIVE_LANE = _rule(
    17,
    "inactive-lane",
    "A shuffle or vote names lanes that do not take part.",
    what="`__shfl_*_sync`, `__ballot_sync` and the like whose mask names lanes that are not there, or that read from a "
    "lane that is not active.",
    why="What such a lane gives is undefined, and the warp may wait for it for ever.",
    before="if (threadIdx.x < 20)\n    v += __shfl_down_sync(0xffffffff, v, 8);",
    after="v = threadIdx.x < 20 ? v : 0.0f;\nv += __shfl_down_sync(0xffffffff, v, 8);",
    fix="Let all lanes of the mask execute it, with neutral values where needed, or pass the mask of those that do.",
)

DEADLOCK = _rule(
    18,
    "deadlock",
    "Every thread that is left waits for another one.",
    what="A block none of whose threads can go on: barriers with different counts, or locks taken in a ring.",
    why="On a GPU the kernel hangs and takes the process with it.",
    before="while (atomicCAS(lock, 0, 1) != 0) {}  // blocks that hold it wait at a barrier",
    after="if (threadIdx.x == 0) while (atomicCAS(lock, 0, 1) != 0) {}\n__syncthreads();",
    fix="Let all threads pass the same barriers, and let one thread take a lock for its block.",
)

RUNAWAY = _rule(
    19,
    "runaway-loop",
    "A thread did not come to an end.",
    what="A launch that spent its budget of instructions while some thread still ran.",
    why="A loop whose condition never fails hangs the GPU; so does one that waits for a block that is not there.",
    before="for (unsigned i = n - 1; i >= 0; --i) sum += x[i];  // unsigned is never below zero",
    after="for (int i = n - 1; i >= 0; --i) sum += x[i];",
    fix="Check the condition of the loop that the finding names, at the sizes of the case it names.",
)

RULES = (
    OUT_OF_BOUNDS,
    MISALIGNED,
    UNINITIALISED_GLOBAL,
    UNINITIALISED_SHARED,
    SHARED_RACE,
    GLOBAL_RACE,
    DIVERGENT_BARRIER,
    INACTIVE_LANE,
    DEADLOCK,
    RUNAWAY,
)
