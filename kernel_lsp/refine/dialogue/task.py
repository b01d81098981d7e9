"""Turn a kernel into a prompt and an answer into a candidate, in each format of answers."""

import ast
import re
from dataclasses import dataclass, field
from typing import Protocol

from kernel_lsp.judge.target import Target
from kernel_lsp.model.errors import UnsuitedProfileError
from kernel_lsp.model.profile import Profile
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer, fenced_code, summary
from kernel_lsp.refine.dialogue.architecture import (
    answer_part,
    as_architecture,
    in_place_of_answer,
)
from kernel_lsp.refine.dialogue.edits import Editable, apply_answer, functions
from kernel_lsp.refine.dialogue.kernelbench import Style, check_model_new
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.translation import CandidateTexts, into_cuda, into_triton
from kernel_lsp.refine.kernel_generation import LANGUAGES, is_plain_module, new_path
from kernel_lsp.refine.language import refine_part
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import PROBLEM, inline_sources, is_problem
from kernel_lsp.source.outline import without_comments
from kernel_lsp.source.python import definitions, python_ast

_LABEL = 72  # characters
_SENTENCE = r"(?<=[.!?])\s"


@dataclass(frozen=True, slots=True)
class Briefing:
    """Facts on the kernel as it stands, as lines for a prompt.

    Attributes:
        gpu: name of the GPU, as people write it.
        device: what it has: multiprocessors, memory, measured bandwidth; empty where there is none.
        facts: what the compiler made of the kernel.
        standing: its time and share of the roofline by case.
        tried: the outcomes of other proposers' candidates.
    """

    gpu: str
    device: str = ""
    facts: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


class ModelTask(Protocol):
    """A kernel in a form that a model can work on."""

    def system(self) -> str:
        """Return the system prompt; empty for none."""
        ...

    def first(self, briefing: Briefing, *, example: bool) -> str:
        """Return the first user message; `example` adds the worked example."""
        ...

    def candidate(self, answer: ModelAnswer) -> Candidate:
        """Return the answer as a candidate.

        Raises:
            RejectedAnswer: it breaks the rules of the format.
        """
        ...

    def as_answer(self, candidate: Candidate) -> ModelAnswer | None:
        """Return a candidate as an answer of the model; None where its format cannot express it."""
        ...


def format_for(file: SourceFile, profile: Profile, write: Style | None) -> str:
    """Return the format in which a model is asked about a file.

    A plain module can only be answered with a whole `ModelNew`: then models that know no such format are asked for one.

    Args:
        file: what it is asked about.
        profile: of the model.
        write: what a kernel for a plain module is to be written in; None leaves it to the profile.

    Raises:
        UnsuitedProfileError: models of this profile do not write that language.
    """
    spoken = profile.talk.format
    if not is_plain_module(file):
        return spoken
    wanted = f"kernelbench-{write}" if write else "kernelbench-cuda" if spoken == "edits" else spoken
    if spoken not in ("edits", wanted):
        raise _unsuited(profile, file, f"{source_part(LANGUAGES[write or 'cuda']).title} is asked for")
    return wanted


def make_task(target: Target, profile: Profile, prompts: Prompts) -> ModelTask:
    """Return the task for a target in the profile's format.

    Raises:
        UnsuitedProfileError: models of this profile cannot write this kind of kernel.
    """
    match prompts.format:
        case "edits":
            return _Edits(target, profile, prompts)
        case "kernelbench-cuda" if target.workload.problem:
            return _WholeFile(target, profile, prompts, "cuda")
        case "kernelbench-triton" if target.workload.problem:
            return _WholeFile(target, profile, prompts, "triton")
        case "kernelbench-cuda" if refine_part(target.language).answers == "cuda":
            return _ModelNew(target, profile, prompts, "cuda")
        case "kernelbench-triton" if refine_part(target.language).answers == "triton":
            return _ModelNew(target, profile, prompts, "triton")
        case _:
            raise _unsuited(profile, target.source, f"this kernel is {source_part(target.language).title}")


def _unsuited(profile: Profile, file: SourceFile, but: str) -> UnsuitedProfileError:
    speaks = "Triton" if profile.talk.format == "kernelbench-triton" else "CUDA"
    message = f"Models of the profile `{profile.id}` write {speaks}, and {but}."
    fix = "Set `model.profile` to one for this language, or to `general`."
    return UnsuitedProfileError(message, file.path, fix=fix)


@dataclass(frozen=True)
class _KernelBench:
    """Shows the workload's reference as `Model`; the answer is a `ModelNew`."""

    target: Target
    profile: Profile
    prompts: Prompts
    style: Style

    def system(self) -> str:
        return self.prompts.render("system")

    def first(self, briefing: Briefing, *, example: bool) -> str:
        shown = self.prompts.example() if example else None
        architecture = as_architecture(self.target.workload.source).strip()
        return self.prompts.render("first", architecture=architecture, gpu=briefing.gpu, example=shown)


class _WholeFile(_KernelBench):
    """The `ModelNew` of the answer becomes the whole file: it replaces the user's own, or is a new one."""

    def candidate(self, answer: ModelAnswer) -> Candidate:
        code = fenced_code(answer)
        check_model_new(code, self.style)
        file, language = self.target.source, LANGUAGES[self.style]
        if is_plain_module(file):
            path = new_path(file.path, language)
        else:
            path = file.path
            code = in_place_of_answer(file, code) if is_problem(file.text) else code
        return Candidate(language, SourceFile(path, code), None, label_of(answer), f"model:{self.profile.id}")

    def as_answer(self, candidate: Candidate) -> ModelAnswer | None:
        code = answer_part(candidate.kernel.text).strip()
        try:
            check_model_new(code, self.style)
        except RejectedAnswer:
            return None
        return ModelAnswer(f"```python\n{code}\n```")


class _ModelNew(_KernelBench):
    """The kernels of the answer's `ModelNew` go into the user's file."""

    def candidate(self, answer: ModelAnswer) -> Candidate:
        code = fenced_code(answer)
        tree = check_model_new(code, self.style)
        target = self.target
        base = target.baseline
        files = CandidateTexts(base.kernel.text, base.launch.text if base.launch else None)
        if self.style == "cuda":
            files = into_cuda(tree, code, files, base.kernel.path)
        else:
            files = into_triton(tree, code, files, _wrapper(target))
        return target.version(files.kernel, label_of(answer), f"model:{self.profile.id}", files.launch)

    def as_answer(self, candidate: Candidate) -> None:
        """Return None: the user's own file is no `ModelNew`."""


@dataclass(frozen=True)
class _Edits:
    """Shows the files with line numbers; the answer is a list of edits."""

    target: Target
    profile: Profile
    prompts: Prompts
    _files: list[Editable] = field(default_factory=list[Editable])

    def __post_init__(self) -> None:
        target = self.target
        base = target.baseline
        if target.workload.problem:
            names = frozenset(functions(base.kernel.text, Language.TORCH)) - PROBLEM
            self._files.append(Editable(base.kernel.path.name, base.kernel.text, Language.TORCH, names))
            return
        names = {k.name.rpartition("::")[2] for k in target.kernels if target.kernel in (None, k)}
        helpers = _helpers(base.kernel.text, target, names)
        wrapper = _wrapper_or_none(target)
        in_file = names | helpers | ({wrapper} if wrapper else set()) | ({"launch"} if base.launch is None else set())
        self._files.append(Editable(base.kernel.path.name, base.kernel.text, target.language, frozenset(in_file)))
        if base.launch is not None:
            launch = Editable(base.launch.path.name, base.launch.text, None, frozenset({"launch"}))
            self._files.append(launch)

    def system(self) -> str:
        editable = [f"`{name}`" for file in self._files for name in sorted(file.functions & self._there(file))]
        language = refine_part(self.target.language).prompts
        return self.prompts.render("system", language=language, editable=editable)

    def first(self, briefing: Briefing, *, example: bool) -> str:
        target = self.target
        workload = None if target.workload.in_kernel_file else target.workload.source
        return self.prompts.render(
            "first",
            kernel_name=target.source.path.name,
            kernel_text=target.source.text,
            fence=source_part(target.language).fence,
            workload_name=workload.path.name if workload else "",
            workload_text=workload.text if workload else "",
            device=briefing.device,
            facts=briefing.facts,
            standing=briefing.standing,
            tried=briefing.tried,
        )

    def candidate(self, answer: ModelAnswer) -> Candidate:
        kernel, *others = apply_answer(fenced_code(answer), self._files)
        launch = others[0] if others else None
        return self.target.version(kernel, label_of(answer), f"model:{self.profile.id}", launch)

    def as_answer(self, candidate: Candidate) -> None:
        """Return None: edits apply to the user's file only, not to another version."""

    def _there(self, file: Editable) -> frozenset[str]:
        return frozenset(functions(file.text, file.language))


def label_of(answer: ModelAnswer) -> str:
    """Return a few words for the user: the first sentence of the model's own summary."""
    words = " ".join(summary(answer).split())
    first = re.split(_SENTENCE, re.sub(r"[*_`#]+", "", words), maxsplit=1)[0].rstrip(".:")
    return (first if len(first) <= _LABEL else f"{first[: _LABEL - 1].rstrip()}…") or "the model's variant"


def _wrapper(target: Target) -> str:
    if (name := _wrapper_or_none(target)) is None:
        fix = "Let `launch` call one function of the kernel file, or use the profile `general`."
        raise UnsuitedProfileError(
            "There is no one function whose body an answer could replace.", target.source.path, fix=fix
        )
    return name


def _wrapper_or_none(target: Target) -> str | None:
    """Return the function of a Python file that its launch calls, or its only public one."""
    if not refine_part(target.language).wrapped:
        return None
    there = definitions(target.source.text)
    kernels = {k.name for k in target.kernels}
    workload = target.workload.source.text
    if target.workload.has_launch:
        launch = definitions(workload).get("launch")
        body = workload.encode()[launch.start : launch.end].decode() if launch else ""
        called = list(dict.fromkeys(re.findall(r"\bmodule\.(\w+)\(", body)))
        return called[0] if len(called) == 1 and called[0] in there else None
    public = [n for n in there if not n.startswith("_") and n not in kernels | {"inputs", "reference", "launch"}]
    return public[0] if len(public) == 1 else None


def _helpers(text: str, target: Target, kernels: set[str]) -> set[str]:
    """Return the functions of the file that only these kernels call, directly or not."""
    there = functions(text, target.language)
    data = text.encode()
    bodies = {name: data[span.start : span.end].decode() for name, span in there.items()}
    found: set[str] = set()
    others = [n for n in there if n not in kernels]
    while fresh := {
        n
        for n in others
        if n not in found
        and (callers := [c for c, body in bodies.items() if c != n and re.search(rf"\b{re.escape(n)}\b", body)])
        and all(c in kernels | found for c in callers)
    }:
        found |= fresh
    return found


def normalised(candidate: Candidate) -> str:
    """Return a candidate's text without comments and layout; candidates with equal texts are judged once."""

    def plain(text: str, *, python: bool) -> str:
        if python:
            try:
                return ast.dump(python_ast(text))
            except SyntaxError:
                return text
        return " ".join(without_comments(text.encode()).decode().split())

    launch = plain(candidate.launch.text, python=True) if candidate.launch else ""
    text = candidate.kernel.text
    if not source_part(candidate.language).python:
        return f"{plain(text, python=False)}\0{launch}"
    sources = [source for source in inline_sources(text) if source.kind == "cuda"]
    data = text.encode()
    for source in sorted(sources, key=lambda one: one.span, reverse=True):
        data = data[: source.span.start] + data[source.span.end :]
    return "\0".join([plain(data.decode(), python=True), *(plain(one.text, python=False) for one in sources), launch])
