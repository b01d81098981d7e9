"""Rules about correctness, checked by running the workload against its reference."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule
from kernel_lsp.source.kernel import Language

WRONG = Rule(
    id="KL020",
    name="wrong-result",
    group=Group.CORRECTNESS,
    severity=Severity.ERROR,
    needs=Needs.RUNNING,
    summary="The kernel's outputs are not what the reference says.",
    what="An output further from the float64 reference than its type allows, memory written outside the tensors, or an "
    "input that was changed. The finding names the first wrong element, its value and the right one.",
    why="It is the one thing a kernel has to do.",
    before="acc = 0  # and the last partial tile is left out",
    after="for start in range(0, n, BLOCK):  # all of it, masked at the end",
    fix="Look at the first wrong index: past a multiple of the block size it is a guard, from 0 on it is the formula.",
    language=Language.TRITON,
)

RUN_FAILED = Rule(
    id="KL021",
    name="run-failed",
    group=Group.CORRECTNESS,
    severity=Severity.ERROR,
    needs=Needs.RUNNING,
    summary="The kernel crashed, hung or could not be launched.",
    what="A launch that raised, ended its process, or ran past its deadline.",
    why="It would do so for its callers.",
    before="module.scale[blocks, 2048](x, y, n)  # a block has at most 1024 threads",
    after="module.scale[2 * blocks, 1024](x, y, n)",
    fix="Read the message: it carries the driver's or Python's own words.",
    language=Language.TRITON,
)

BROKEN_WORKLOAD = Rule(
    id="KL022",
    name="broken-workload",
    group=Group.CORRECTNESS,
    severity=Severity.ERROR,
    needs=Needs.NOTHING,
    summary="The workload cannot be used.",
    what="A workload file that cannot be read or lacks a part, and `inputs`, `reference` or `launch` that raise.",
    why="Without it the kernel is compiled, but neither run nor compared with anything.",
    before="def inputs(n):\n    return torch.randn(n)  # not a tuple, not on the GPU",
    after='def inputs(n):\n    return (torch.randn(n, device="cuda"),)',
    fix="Fix what the message names; `kernel-lsp explain workload` shows the form of a workload.",
    language=Language.TRITON,
    silenceable=False,
)

WEAK_WORKLOAD = Rule(
    id="KL023",
    name="weak-workload",
    group=Group.CORRECTNESS,
    severity=Severity.WARNING,
    needs=Needs.RUNNING,
    summary="The workload cannot tell right from wrong.",
    what="A reference that also accepts a trivial answer: zeros, the mean everywhere, a copy of an input, or the "
    "answer to other inputs. Also a `launch` that fails on more sets of inputs than it manages.",
    why="A kernel that computes nothing would pass, so no verdict that rests on this workload means anything.",
    before="def inputs(n):\n    return (torch.zeros(n, device='cuda'),)",
    after="def inputs(n):\n    return (torch.randn(n, device='cuda'),)",
    fix="Make inputs that vary, and tolerances no wider than the type needs.",
    language=Language.TRITON,
)

RULES = (WRONG, RUN_FAILED, BROKEN_WORKLOAD, WEAK_WORKLOAD)
