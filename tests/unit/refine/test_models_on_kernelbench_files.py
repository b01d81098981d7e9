"""KernelBench files in a dialogue: what a model is shown of them, and how its answers become files."""

import json

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.model.errors import NoServerError, UnsuitedProfileError
from kernel_lsp.model.profile import find_profile
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.refine.batch import advance_batch, begin_batch
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.refine.dialogue.conversation import messages, tell
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, format_for, make_task, normalised
from kernel_lsp.refine.kernel_generation import is_plain_module, new_path
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.model_session import opening
from kernel_lsp.refine.offers import Offer
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.refine.run import require_way
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.text import apply_edits
from kernel_lsp.store.store import open_store
from tests.served_model.module import BROKEN, PROBLEM, RIGHT, TRITON, WRONG, code_of, write_answer, write_module
from tests.unit.report.sample_verdicts import evidence, faster

KEVIN, GENERAL = find_profile("kevin-32b"), find_profile("general")
H200 = Briefing("NVIDIA H200")


async def few(_) -> int:
    return 100


def talk_about(path, profile=KEVIN, write=None):
    target = make_target(path)
    prompts = Prompts(format_for(target.source, profile, write))
    return target, prompts, make_task(target, profile, prompts)


# A plain module.


@pytest.mark.asyncio
async def test_a_plain_module_is_the_architecture(tmp_path):
    _, _, task = talk_about(write_module(tmp_path))
    [first] = await messages(task, KEVIN.talk, H200, [], few)
    assert f"```python\n{PROBLEM}```" in first["content"]
    assert "Here is an example of how this is done." in first["content"]


def test_the_answer_to_a_plain_module_is_a_new_file(tmp_path):
    path = write_module(tmp_path)
    target, _, task = talk_about(path)
    made = task.candidate(ModelAnswer(RIGHT))
    assert made.kernel == SourceFile(tmp_path / "scale_cuda.py", code_of(RIGHT))
    assert (made.language, made.launch, made.label) == (Language.TORCH, None, "Blocks of 64 threads")
    assert [k.name for k in find_kernels(made.kernel.text, made.kernel.path)] == ["scale"]
    assert is_plain_module(target.source)
    assert not is_plain_module(made.kernel)
    assert new_path(path, Language.TRITON).name == "scale_triton.py"


@pytest.mark.parametrize(
    ("profile", "write", "expected"),
    [
        ("kevin-32b", None, "kernelbench-cuda"),
        ("kevin-32b", "cuda", "kernelbench-cuda"),
        ("drkernel-8b", None, "kernelbench-triton"),
        ("general", None, "kernelbench-cuda"),
        ("general", "triton", "kernelbench-triton"),
    ],
)
def test_any_model_is_asked_for_a_whole_file(tmp_path, profile, write, expected):
    _, prompts, task = talk_about(write_module(tmp_path), find_profile(profile), write)
    assert prompts.format == expected
    made = task.candidate(ModelAnswer(TRITON if expected.endswith("triton") else RIGHT))
    assert made.language is (Language.TRITON if expected.endswith("triton") else Language.TORCH)


def test_a_model_that_does_not_write_the_language_is_refused(tmp_path):
    with pytest.raises(UnsuitedProfileError, match="`kevin-32b` write CUDA, and Triton is asked for"):
        talk_about(write_module(tmp_path), write="triton")


def test_only_a_model_can_lower(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    source = make_target(write_module(tmp_path)).source
    with pytest.raises(ConfigurationError, match="`tuner-only` asks none"):
        require_way(source, load_settings(overrides={"refine.strategy": "tuner-only"})[0])
    with pytest.raises(NoServerError, match="No model server is running"):
        require_way(source, load_settings()[0])
    require_way(make_target(write_answer(tmp_path)).source, load_settings()[0])


def test_a_module_without_inputs_says_what_it_lacks(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(PROBLEM.replace("def get_inputs", "def inputs_for"))
    with pytest.raises(SourceError, match="needs `get_inputs`") as caught:
        make_target(path)
    assert "returns the arguments of `forward` as a list" in (caught.value.fix or "")


# A file with a `ModelNew`.


@pytest.mark.asyncio
async def test_the_users_answer_opens_the_conversation(tmp_path):
    target, prompts, task = talk_about(write_answer(tmp_path))
    begun = opening(prompts, task, target.baseline)
    first, answer, feedback = await messages(task, KEVIN.talk, H200, begun, few)
    assert f"```python\n{PROBLEM}```" in first["content"]
    assert "Here are your previous attempts:" in first["content"]
    assert answer == {"role": "assistant", "content": f"```python\n{code_of(RIGHT)}```"}
    assert feedback["content"].startswith("Your previous answer was correct. It runs at 1.00 times the speed")


@pytest.mark.asyncio
async def test_an_answer_outside_the_models_rules_does_not(tmp_path):
    target, prompts, task = talk_about(write_answer(tmp_path, TRITON))
    begun = opening(prompts, task, target.baseline)
    assert begun == []
    [first] = await messages(task, KEVIN.talk, H200, begun, few)
    assert "triton" not in first["content"]


def test_the_answer_to_an_answer_is_the_file(tmp_path):
    path = write_answer(tmp_path)
    _, _, task = talk_about(path)
    assert task.candidate(ModelAnswer(WRONG)).kernel == SourceFile(path, code_of(WRONG))


def test_a_file_that_holds_its_problem_keeps_it(tmp_path):
    path = tmp_path / "both.py"
    path.write_text(f"{PROBLEM}\n\n{code_of(WRONG)}")
    target, prompts, task = talk_about(path)
    assert target.workload.in_kernel_file
    assert "load_inline(name" not in task.first(H200, example=False)
    [begun] = opening(prompts, task, target.baseline)
    assert "def get_inputs" not in begun.answer.text
    repeated = RIGHT.replace("```python\n", f"```python\n{PROBLEM}\n")
    for answer in (RIGHT, repeated):
        text = task.candidate(ModelAnswer(answer)).kernel.text
        assert text.count("class Model(nn.Module)") == text.count("size = 40") == text.count("class ModelNew") == 1
        assert text.index("def get_init_inputs") < text.index("__global__")
        assert "* 3.0f;" in text
        assert "+ 1.0f" not in text
        compile(text, "both.py", "exec")


def test_an_answer_that_changes_what_the_problem_means_is_rejected(tmp_path):
    path = tmp_path / "both.py"
    path.write_text(f"{PROBLEM}\n\n{code_of(WRONG)}")
    _, _, task = talk_about(path)
    with pytest.raises(RejectedAnswer, match="`size` is a name of the given file"):
        task.candidate(ModelAnswer(RIGHT.replace("source = ", "size = 4096\nsource = ", 1)))


def test_compile_errors_are_told_in_the_lines_of_the_file(tmp_path):
    _, prompts, _ = talk_about(write_answer(tmp_path))
    log = 'scale_cuda.py:7: error: identifier "z" is undefined\n    if (i < n) y[i] = 3.0f * z[i];'
    told = tell(prompts, Feedback(Stage.BUILD, Outcome.BUILD_FAILED, log=log))
    assert f"failed to compile. Here is the error message:\n\n{log}" in told


# What says the same.


def test_comments_and_layout_in_strings_do_not_make_another_answer(tmp_path):
    _, _, task = talk_about(write_answer(tmp_path))
    one = task.candidate(ModelAnswer(RIGHT))
    clone = RIGHT.replace("x[i] * 3.0f;", "x[i]  *  3.0f;  // three times").replace("op.run(x)", "op.run( x )")
    assert normalised(one) == normalised(task.candidate(ModelAnswer(clone)))
    assert normalised(one) != normalised(task.candidate(ModelAnswer(WRONG)))
    other = RIGHT.replace("return op.run(x)", "return op.run(x) + 0")
    assert normalised(one) != normalised(task.candidate(ModelAnswer(other)))


# Edits of general models.


def blocks(old: str, new: str) -> ModelAnswer:
    return ModelAnswer(f"```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\nDone.")


def test_edits_reach_into_strings(tmp_path):
    path = write_answer(tmp_path)
    target, _, task = talk_about(path, GENERAL)
    assert "`ModelNew`, `run`, `scale`" in task.system()
    assert "make CUDA C++ kernels" in task.system()
    made = task.candidate(blocks("    if (i < n) y[i] = x[i] * 3.0f;", "    if (i < n) y[i] = 3.0f * x[i];"))
    assert made.kernel == SourceFile(path, code_of(RIGHT).replace("x[i] * 3.0f", "3.0f * x[i]"))
    assert made.language is target.language is Language.TORCH


@pytest.mark.parametrize("fence", ["cuda", "python"])
def test_whole_functions_reach_into_strings(tmp_path, fence):
    _, _, task = talk_about(write_answer(tmp_path), GENERAL)
    kernel = "__global__ void scale(const float* x, float* y, int n) {\n    y[0] = x[0];\n}"
    cls = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return op.run(x.contiguous())"
    text = task.candidate(ModelAnswer(f"```{fence}\n{kernel if fence == 'cuda' else cls}\n```\nDone.")).kernel.text
    assert (kernel if fence == "cuda" else cls) in text
    assert "x[i] * 3.0f" not in text if fence == "cuda" else "return op.run(x)\n" not in text
    compile(text, "answer.py", "exec")


def test_a_function_with_a_backslash_is_not_put_into_a_string(tmp_path):
    _, _, task = talk_about(write_answer(tmp_path), GENERAL)
    with pytest.raises(RejectedAnswer, match="backslash"):
        task.candidate(ModelAnswer('```cuda\n__global__ void scale(int n) { printf("%d\\n", n); }\n```\nDone.'))


def test_edits_leave_the_problem_alone(tmp_path):
    path = tmp_path / "both.py"
    path.write_text(f"{PROBLEM}\n\n{code_of(RIGHT)}")
    _, _, task = talk_about(path, GENERAL)
    with pytest.raises(RejectedAnswer, match=r"`get_inputs` in both\.py is not yours to change"):
        task.candidate(blocks("    return [torch.arange(size, dtype=torch.float32)]", "    return [torch.zeros(size)]"))


# Settings and rewrites.


def test_settings_are_found_in_strings_and_written_back(tmp_path):
    target = make_target(write_answer(tmp_path))
    space = find_tunables(target.baseline, "scale", device_named("H100"))
    [block] = [t for t in space.tunables if t.current == 64]
    made = space.form({block.name: 128})
    assert made is not None
    assert made.kernel.text == code_of(RIGHT).replace("(n + 63) / 64, 64", "(n + 127) / 128, 128")
    assert (made.language, made.kernel.path) == (Language.TORCH, target.source.path)
    compile(made.kernel.text, "answer.py", "exec")


def test_on_a_line_behind_an_escape_nothing_is_turned(tmp_path):
    path = write_answer(
        tmp_path, RIGHT.replace("    int n = x.numel();\n    ", '    int n = x.numel(); printf("\\\\n"); ')
    )
    target = make_target(path)
    assert 'printf("\\\\n"); scale<<<(n + 63) / 64, 64>>>' in target.source.text
    assert find_tunables(target.baseline, "scale", device_named("H100")).tunables == ()


def test_rewrites_are_found_in_strings_and_written_back(tmp_path):
    target = make_target(write_answer(tmp_path))
    found = list(find_rewrites(target.baseline, target.kernels[0], device_named("H100")))
    assert found
    for candidate in found:
        assert candidate.language is Language.TORCH
        compile(candidate.kernel.text, "answer.py", "exec")
        assert "class ModelNew(nn.Module):" in candidate.kernel.text
    assert any("__restrict__" in candidate.kernel.text for candidate in found)


# Offers.


def offer_for(path, variant):
    target = make_target(path)
    sources = {"baseline": target.source.text, "candidate": variant, "workload": target.workload.source.text}
    rests_on = evidence(kernel_path=str(path), workload_path=str(target.workload.source.path), sources=sources)
    return target, Offer(faster(evidence=rests_on))


def test_a_variant_of_an_answer_is_edited_into_it(tmp_path):
    path = write_answer(tmp_path)
    variant = code_of(RIGHT).replace("x[i] * 3.0f", "3.0f * x[i]")
    target, offer = offer_for(path, variant)
    assert not offer.creates
    assert [kernel.name for kernel in offer.kernels] == ["scale"]
    moved = SourceFile(path, f"# a note\n{target.source.text}")
    assert offer.may_fit(moved.text)
    [edited] = offer.place(moved, target.workload.source)
    assert apply_edits(moved.text, edited.edits) == f"# a note\n{variant}"
    assert offer.is_applied(variant)
    with pytest.raises(SourceError, match="older version"):
        offer.place(SourceFile(path, moved.text.replace("int n = x.numel();", "int n = 2;")), target.workload.source)


def test_a_kernel_for_a_module_is_a_file_of_its_own(tmp_path):
    path = write_module(tmp_path)
    target, offer = offer_for(path, code_of(TRITON))
    assert offer.creates
    elsewhere = SourceFile(tmp_path / "copy.py", f"{target.source.text}\n# a note\n")
    [made] = offer.place(elsewhere, None)
    assert made.file == SourceFile(tmp_path / "copy_triton.py", "")
    assert apply_edits("", made.edits) == code_of(TRITON)
    with pytest.raises(SourceError, match="older version"):
        offer.place(SourceFile(path, PROBLEM.replace("3 * x", "4 * x")), None)
    made.file.path.touch()
    with pytest.raises(SourceError, match="This file already exists"):
        offer.place(elsewhere, None)


# Sweeps.


@pytest.mark.thorough
@pytest.mark.asyncio
async def test_a_sweep_takes_modules_and_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    names = [str(write_module(tmp_path)), str(write_answer(tmp_path))]
    wanted = {"refine.turns": 2, "refine.trajectories": 1, "refine.write": "cuda", "judge.families": ["normal"]}
    settings, _ = load_settings(overrides=wanted | {"paths.cache": tmp_path / "cache"})
    folder = tmp_path / "sweep"
    asked = []
    with open_store(tmp_path / "data") as store:
        batch = begin_batch(folder, names, settings)
        assert begin_batch(folder, (), settings) == batch
        assert batch.write == "cuda"
        for turn, answers in enumerate(((BROKEN, WRONG), (RIGHT, RIGHT)), 1):
            stand = await advance_batch(batch, settings, store, LocalPool((), settings))
            assert not stand.troubles
            lines = [json.loads(line) for line in (batch.turn(turn) / "requests.jsonl").read_text().splitlines()]
            asked.append([[m["content"] for m in line["body"]["messages"]] for line in lines])
            said = [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} for text in answers]
            made = [
                {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": {"choices": [one]}}}
                for line, one in zip(lines, said, strict=True)
            ]
            (batch.turn(turn) / "answers.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
        await advance_batch(batch, settings, store, LocalPool((), settings))
    assert [len(said) for said in asked[0]] == [1, 3], "the answer's own text is an earlier attempt"
    assert [len(said) for said in asked[1]] == [3, 5]
    assert 'scale_cuda.py:7: error: identifier "z" is undefined' in asked[1][0][-1]
    assert "40 of 40 are wrong" in asked[1][1][-1]
    assert [one.outcome for one in batch.outcomes()] == ["BUILD_FAILED", "WRONG", "UNTIMED", "REJECTED"]
