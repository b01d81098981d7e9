"""Rules about bulk copies, mbarriers and `wgmma`, checked by the emulator while it runs a workload."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule


def _rule(number: int, name: str, summary: str, *, what: str, why: str, before: str, after: str, fix: str) -> Rule:
    return Rule(
        id=f"KL{number:03}",
        name=name,
        group=Group.ASYNCHRONOUS,
        severity=Severity.ERROR,
        needs=Needs.EMULATING,
        summary=summary,
        what=what,
        why=why,
        before=before,
        after=after,
        fix=fix,
    )


UNAWAITED_COPY = _rule(
    60,
    "unawaited-copy",
    "A stage is used before the phase of its barrier is complete.",
    what="An access of shared memory that a bulk copy still writes: the thread has not waited for the mbarrier that "
    "the copy signals, has waited for another phase of it, or has not synchronised with a thread that waited.",
    why="The copy arrives when it likes. The kernel reads what the last round left, most often on the first launches "
    "after a change of clocks, sizes or neighbours.",
    before="wait(&full[stage], parity ^ 1);  // the phase before: returns at once\nfloat v = tile[stage][threadIdx.x];",
    after="wait(&full[stage], parity);\nfloat v = tile[stage][threadIdx.x];",
    fix="Wait for the barrier of this stage with the parity of this round, 0 in the first one; flip it each time that "
    "the ring starts again.",
)

OVERWRITTEN_STAGE = _rule(
    61,
    "overwritten-stage",
    "A stage is overwritten while it may still be read.",
    what="A bulk copy, or a store, into shared memory that other threads may still read, or that a bulk store or "
    "`wgmma` under way still reads: no wait, barrier or arrival orders the two.",
    why="The reader gets part of the next tile. It takes a slow reader and a fast copy to see it, so it passes tests.",
    before="load_tile(tile[stage], &full[stage]);  // the consumers may still read it",
    after="wait(&empty[stage], parity ^ 1);\nload_tile(tile[stage], &full[stage]);",
    fix="Let consumers arrive at an `empty` barrier after their last read (after `wgmma.wait_group` or "
    "`cp.async.bulk.wait_group.read`), and wait for it before the stage is filled again.",
)

TRANSACTION_BYTES = _rule(
    62,
    "transaction-bytes",
    "The bytes that a barrier expects are not those that the copies bring.",
    what="A phase of an mbarrier that cannot end, or a block that ends, with a count of bytes that is not zero: "
    "`expect_tx` announced more than the copies brought, less, or nothing.",
    why="Too many announced bytes hang the kernel. Too few end the phase while a part of the tile is still under way.",
    before="arrive_expect_tx(&full, sizeof(a));\nbulk_copy(a, x, sizeof(a), &full);\n"
    "bulk_copy(b, y, sizeof(b), &full);",
    after="arrive_expect_tx(&full, sizeof(a) + sizeof(b));\nbulk_copy(a, x, sizeof(a), &full);\n"
    "bulk_copy(b, y, sizeof(b), &full);",
    fix="Announce the sum of all copies that signal the barrier in this phase. A tensor copy always counts its whole "
    "box, also where that lies outside the tensor.",
)

MISSING_PROXY_FENCE = _rule(
    63,
    "missing-proxy-fence",
    "What threads wrote is used by a bulk copy or `wgmma` without a proxy fence.",
    what="Shared memory that threads have written by ordinary stores, and that a bulk copy or `wgmma` reads or "
    "overwrites, with no `fence.proxy.async` on the way from the one to the other. A barrier alone is not enough.",
    why="Copies and tensor cores reach memory by another path, the async proxy, which may not see the stores yet.",
    before="tile[threadIdx.x] = v;\n__syncthreads();\nif (threadIdx.x == 0) bulk_store(y, tile, sizeof(tile));",
    after='tile[threadIdx.x] = v;\nasm volatile("fence.proxy.async.shared::cta;");\n__syncthreads();\n'
    "if (threadIdx.x == 0) bulk_store(y, tile, sizeof(tile));",
    fix="Let each thread that wrote execute `fence.proxy.async.shared::cta` before the barrier.",
)

MISUSED_MBARRIER = _rule(
    64,
    "misused-mbarrier",
    "An mbarrier is used that is not initialised, or more often than its count says.",
    what="An arrival, wait or copy that names memory where no mbarrier lives, an arrival in a phase whose arrivals "
    "have all come while bytes are still missing, and a wait by parity for a phase after which another one ends before "
    "the thread goes on.",
    why="Such a use is undefined: the barrier counts something else from then on, and hangs or opens at any time.",
    before="init(&full, 1);\narrive_expect_tx(&full, bytes);  // by each of 128 threads",
    after="init(&full, 1);\nif (threadIdx.x == 0) arrive_expect_tx(&full, bytes);",
    fix="Make the count of `init` the number of arrivals in one phase, and let one thread initialise, before a "
    "barrier of the block.",
)

MISMATCHED_SWIZZLE = _rule(
    65,
    "mismatched-swizzle",
    "`wgmma` reads a tile with another swizzle than it was copied with.",
    what="An operand of `wgmma` in shared memory whose descriptor names one swizzle, while the tensor map of the copy "
    "that brought it has another one, or one of them has none.",
    why="A swizzle exchanges pieces of 16 bytes by the row they are in. Read with another one, rows are mixed up: the "
    "answer is wrong, and nothing else tells.",
    before="map = boxes_of(a, 64, 64, CU_TENSOR_MAP_SWIZZLE_64B);  // on the host\n"
    "multiply(d, address | 1ull << 62, b);  // 128 bytes",
    after="map = boxes_of(a, 64, 64, CU_TENSOR_MAP_SWIZZLE_128B);\nmultiply(d, address | 1ull << 62, b);",
    fix="Give map and descriptor the same swizzle: 1 in the descriptor's highest two bits is 128 bytes, 2 is 64, 3 is "
    "32. The box's rows are as wide as the swizzle.",
)

UNAWAITED_PRODUCT = _rule(
    66,
    "unawaited-product",
    "A sum of `wgmma` is used before the product has been waited for.",
    what="An instruction that reads a register to which a `wgmma` under way still adds, or that is A of one: its group "
    "has not been committed, or `wgmma.wait_group` leaves it open.",
    why="What the instruction sees is undefined. ptxas waits by itself where it notices, after every product, and the "
    "tensor cores idle.",
    before="multiply(d, a, b);\ncommit_group();\nfor (float& x : d) x *= scale;\nwait_group<0>();",
    after="multiply(d, a, b);\ncommit_group();\nwait_group<0>();\nfor (float& x : d) x *= scale;",
    fix="Commit the group and wait for it before the sums are used.",
)

RULES = (
    UNAWAITED_COPY,
    OVERWRITTEN_STAGE,
    TRANSACTION_BYTES,
    MISSING_PROXY_FENCE,
    MISUSED_MBARRIER,
    MISMATCHED_SWIZZLE,
    UNAWAITED_PRODUCT,
)
