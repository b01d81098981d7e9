"""The requests that clients can make beyond the protocol, each declared once: jobs, commands, kinds of code actions.

Capabilities, code actions, lenses, commands, titles, the work in the service process and the tables of
`docs/lsp-protocol.md` are made from these records. It imports nothing, because `lsp.initialize` needs it at once.
"""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "kernel-lsp."
"""Of the names of commands."""

REWRITES = "refactor.rewrite.kernel-lsp"
QUICK_FIX = "quickfix"
EVIDENCE = "refactor.kernel-lsp.evidence"
DRAFT = "refactor.kernel-lsp.draft"
CAPTURES = "refactor.kernel-lsp.capture"
"""Below `refactor`, as all that leads on: VS Code shows `source` only in a menu of its own, and not at Ctrl+. ."""


class JobSubject(StrEnum):
    """The place where a job is offered, which determines the arguments of its command."""

    KERNEL = "kernel"
    MODULE = "module"
    FILE = "file"
    KERNEL_FILE = "kernel file"
    FINDING = "finding"
    PROGRAM = "program"
    NOWHERE = "nowhere"


_ARGUMENTS = {
    JobSubject.KERNEL: ("uri", "kernel?"),
    JobSubject.MODULE: ("uri", "label"),
    JobSubject.FILE: ("uri",),
    JobSubject.KERNEL_FILE: ("uri",),
    JobSubject.FINDING: ("uri", "kernel", "label"),
    JobSubject.PROGRAM: ("uri", "label?"),
    JobSubject.NOWHERE: ("uri",),
}


class Need(StrEnum):
    """A requirement of a job; `features.readiness` tells the user which one is missing."""

    FILE = "file"
    TRUST = "trust"
    SOUND_WORKLOAD = "sound workload"
    WORKLOAD = "workload"
    GPU = "GPU"
    MODEL = "model"
    FREE_PLACE = "free place"
    SAVED = "saved"
    NO_ERRORS = "no errors"


_PARSED = (Need.FILE, Need.TRUST, Need.SOUND_WORKLOAD)
_TIMED = (*_PARSED, Need.WORKLOAD, Need.GPU)


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job.

    In `action`, `stop` and `title`, `{name}` is the kernel, else the file; `{label}` is the rewrite or the choice.

    Attributes:
        name: of the job in requests, and of its command after `PREFIX`.
        what: what it does, for the documentation.
        subject: where it is offered.
        action_kind: kind of its code action.
        action: title of its code action.
        title: of the job while it runs.
        handler: `module:function` that does the work in the service process, given a `job_handlers.context.JobContext`.
        needs: what must be there, in the order in which it is looked for.
        lens: title of its lens; empty where it has none.
        stop: title of the code action that ends it; empty where the action that starts it stays.
        choices: of a module's job, the labels that it can be given and how they are written for people.
        exclusive: whether it takes turns with other jobs, as all that time must.
    """

    name: str
    what: str
    subject: JobSubject
    action_kind: str
    action: str
    title: str
    handler: str
    needs: tuple[Need, ...]
    lens: str = ""
    stop: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    exclusive: bool = True

    @property
    def is_judging(self) -> bool:
        """True if it uses the workers that the warm service has begun to set up."""
        return Need.GPU in self.needs

    @property
    def command(self) -> "Command":
        """Return the command that starts it."""
        return Command(self.name, _ARGUMENTS[self.subject], "the job")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: after `PREFIX`.
        arguments: names of its arguments, all texts: `name?` may be left out or null, `name...` is any number of them.
        answer: what it answers with, for the documentation.
    """

    name: str
    arguments: tuple[str, ...]
    answer: str

    @property
    def full_name(self) -> str:
        """Return its name for clients."""
        return PREFIX + self.name

    def texts(self, given: list[object]) -> list[str | None]:
        """Return the arguments given, omitted ones as None.

        Raises:
            ValueError: they are not what the command takes; the message says what it takes.
        """
        if self.arguments and self.arguments[-1].endswith("..."):
            if not all(isinstance(one, str) for one in given):
                raise ValueError(f"`{self.full_name}` takes any number of texts.")
            return [str(one) for one in given]
        padded = [*given, *[None] * (len(self.arguments) - len(given))]
        pairs = zip(self.arguments, padded, strict=False)
        sound = all(isinstance(one, str) or (one is None and name.endswith("?")) for name, one in pairs)
        if len(padded) != len(self.arguments) or not sound:
            raise ValueError(f"`{self.full_name}` takes texts: {', '.join(self.arguments) or 'none'}.")
        return [None if one is None else str(one) for one in padded]


_HANDLERS = "kernel_lsp.lsp.job_handlers"

REFINE = JobKind(
    name="refine",
    what="searches for a faster variant of a kernel",
    subject=JobSubject.KERNEL,
    action_kind=REWRITES,
    action="Refine {name}",
    title="Refining {name}",
    handler=f"{_HANDLERS}.search:refine",
    needs=_TIMED,
    lens="Refine",
    stop="Stop refining {name}",
)
LOWER = JobKind(
    name="lower",
    what="generates a kernel for a plain PyTorch module, in the language that `label` names",
    subject=JobSubject.MODULE,
    action_kind=REWRITES,
    action="Write a {label} kernel for this module",
    title="Writing a kernel for {name}",
    handler=f"{_HANDLERS}.search:lower",
    needs=(*_TIMED, Need.MODEL, Need.FREE_PLACE),
    lens="Write a {label} kernel",
    stop="Stop writing a {label} kernel",
    choices=(("cuda", "CUDA"), ("triton", "Triton")),
)
CHECK = JobKind(
    name="check",
    what="checks the file",
    subject=JobSubject.FILE,
    action_kind="refactor.kernel-lsp.check",
    action="Check {name}",
    title="Checking {name}",
    handler=f"{_HANDLERS}.checks:check_text",
    needs=_PARSED,
    lens="Check",
    exclusive=False,
)
PROFILE = JobKind(
    name="profile",
    what="counts on the emulator what each line of a kernel executes and moves, and samples on a GPU where its warps "
    "wait; without `kernel` for all of them",
    subject=JobSubject.KERNEL,
    action_kind="refactor.kernel-lsp.profile",
    action="Profile {name}",
    title="Profiling {name}",
    handler=f"{_HANDLERS}.profiling:profile",
    needs=(*_PARSED, Need.WORKLOAD),
    exclusive=False,
)
COMPARE = JobKind(
    name="compare",
    what="judges the text against the last commit",
    subject=JobSubject.KERNEL_FILE,
    action_kind="refactor.kernel-lsp.compare",
    action="Compare {name} with the last commit",
    title="Comparing {name} with the last commit",
    handler=f"{_HANDLERS}.judging:compare",
    needs=_TIMED,
)
BASELINE = JobKind(
    name="baseline",
    what="records the regression snapshot of the file as it is on disk",
    subject=JobSubject.KERNEL_FILE,
    action_kind="source.kernel-lsp.baseline",
    action="Record the baseline of {name}",
    title="Recording the baseline of {name}",
    handler=f"{_HANDLERS}.checks:record",
    needs=(*_PARSED, Need.SAVED, Need.NO_ERRORS),
)
REWRITE = JobKind(
    name="rewrite",
    what="judges the rewrite that `label` names",
    subject=JobSubject.FINDING,
    action_kind=QUICK_FIX,
    action="Judge a fix: {label}",
    title="Judging {label} on {name}",
    handler=f"{_HANDLERS}.judging:rewrite",
    needs=_TIMED,
)

FIX = JobKind(
    name="fix",
    what="checks mechanical fixes of the errors that a check found; those that hold become quick fixes",
    subject=JobSubject.NOWHERE,
    action_kind=QUICK_FIX,
    action="Look for fixes of {name}",
    title="Checking fixes of {name}",
    handler=f"{_HANDLERS}.fixes:fix",
    needs=_PARSED,
    exclusive=False,
)

CAPTURE = JobKind(
    name="capture",
    what="runs the program that `label`, else the setting `capture.command`, names, and makes workloads of what its "
    "kernels were given",
    subject=JobSubject.PROGRAM,
    action_kind=CAPTURES,
    action="Capture a run of {label}",
    title="Capturing {label} for {name}",
    handler=f"{_HANDLERS}.capturing:capture",
    needs=(Need.FILE, Need.TRUST),
    stop="Stop capturing {label}",
)

JOBS = {kind.name: kind for kind in (REFINE, LOWER, CHECK, PROFILE, COMPARE, BASELINE, REWRITE, FIX, CAPTURE)}
"""By name, in the order in which they are offered on their subject."""

SEARCHES = (REFINE, LOWER)
"""Jobs that are refused without a GPU, unless `refine.untimed` is set: all they do is look for what is faster.

Other jobs that need a GPU are not offered without one, but a client that starts them gets the emulator's verdict.
"""

COMMANDS = (
    *(kind.command for kind in JOBS.values()),
    Command("cancel", ("job?",), "true if a job was under way; without an id all are cancelled"),
    Command("ask", ("uri", "sentence", "kernel?"), "the search that a model hears the sentence in, begun if none runs"),
    Command("apply", ("uri", "verdict"), "true if the editor applied it"),
    Command("difference", ("uri", "verdict"), "the same as `evidence`; VS Code shows the difference"),
    Command("evidence", ("verdict", "uri?"), "the page, which is also shown"),
    Command(
        "draft",
        ("uri", "kernel?"),
        "the workload file, which is also shown: written, or one that cannot be used yet",
    ),
    Command("adopt", ("uri", "function"), "the workload file that a capture became, a draft, which is also shown"),
    Command("captures", ("uri", "kernel?"), "a page of what programs were seen to call, which is also shown"),
    Command("explain", ("rule",), "the page of a rule, which is also shown"),
    Command("machineCode", ("uri", "kernel?"), "a listing of the machine code, which is also shown"),
    Command("trust", ("folder...",), "the folders, given by URI or path; by default the workspace's"),
    Command("untrust", ("folder...",), "the same"),
)

ACTION_KINDS = tuple(dict.fromkeys([*(kind.action_kind for kind in JOBS.values()), EVIDENCE, DRAFT]))
"""Kinds of code actions, as the server announces them."""


def jobs_on(subject: JobSubject) -> list[JobKind]:
    """Return the kinds of jobs that are offered on a subject."""
    return [kind for kind in JOBS.values() if kind.subject is subject]
