"""Rules about compiler messages."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule

ERROR = Rule(
    id="KL001",
    name="compile-error",
    group=Group.COMPILE,
    severity=Severity.ERROR,
    needs=Needs.COMPILING,
    summary="The kernel does not compile.",
    what="Every error of the compiler that built the file (NVRTC, nvcc or Triton), at its place.",
    why="Nothing else can be said of a kernel that does not compile: it is neither run nor measured.",
    before='y[i] = two * x[i];  // identifier "two" is undefined',
    after="y[i] = 2.0f * x[i];",
    fix="Fix what the message names; `kernel-lsp facts FILE` compiles alone.",
    silenceable=False,
)

WARNING = Rule(
    id="KL002",
    name="compile-warning",
    group=Group.COMPILE,
    severity=Severity.WARNING,
    needs=Needs.COMPILING,
    summary="The compiler warns.",
    what="Every warning of the compiler that built the file, at its place in your file or header.",
    why="Compilers warn of little in device code; what they do warn of is mostly meant otherwise.",
    before="int unused = threadIdx.x;  // variable was declared but never referenced",
    after="// the line is gone",
    fix="Fix what the message names.",
)

RULES = (ERROR, WARNING)
