"""The rows that the terminal and the page both show."""

import ast
from pathlib import Path

from kernel_lsp.judge.verdict import Evidence, KernelResources, Where
from kernel_lsp.report import view
from kernel_lsp.report.view.kernels import instructions_section, kernel_rows, opcode_rows
from kernel_lsp.report.view.parts import FactList, More, Paragraph, Table
from kernel_lsp.report.view.verdict import verdict_view
from kernel_lsp.report.view.words import change_text
from tests.unit.report.sample_verdicts import evidence, faster

NOT_SHOWN = {"command": "the report makes its own, `repeat_commands`"}


def test_every_field_of_evidence_is_shown():
    trees = [ast.parse(path.read_text()) for path in Path(view.__file__).parent.glob("*.py")]
    read = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    shown = {n.attr for n in read if ast.unparse(n.value).rpartition(".")[2] == "evidence"}
    assert set(Evidence.model_fields) - shown == set(NOT_SHOWN), "no section of report/view reads them"


def kernel(name, registers, occupancy=0.5):
    return KernelResources(
        name=name,
        registers=registers,
        shared_bytes=0,
        spill_bytes=None,
        stack_bytes=0,
        threads=128,
        occupancy=occupancy,
        limiter="registers",
    )


def test_kernels_are_compared_by_place_and_by_name_where_their_number_changed():
    renamed = evidence(baseline_resources=(kernel("k<4>", 40),), candidate_resources=(kernel("k<8>", 32),))
    assert [(name, cells[0]) for name, cells in kernel_rows(renamed)] == [("k<8>", "40 → 32")]
    split = evidence(baseline_resources=(kernel("k", 40),), candidate_resources=(kernel("new", 16), kernel("k", 32)))
    assert [(name, cells[0]) for name, cells in kernel_rows(split)] == [("new", "16"), ("k", "40 → 32")]


def test_what_is_not_known_is_a_question_mark():
    [(_, cells)] = kernel_rows(evidence(baseline_resources=(), candidate_resources=(kernel("k", 32, None),)))
    assert cells == ["32", "?", "0 B", "128", "?", "registers"]


def test_the_largest_change_of_instructions_comes_first():
    counted = evidence(
        baseline_opcodes={"FFMA": 8, "LDG": 4, "MOV": 1}, candidate_opcodes={"FFMA": 9, "LDG": 1, "MOV": 1}
    )
    assert opcode_rows(counted.baseline_opcodes, counted.candidate_opcodes) == [("LDG", 4, 1), ("FFMA", 8, 9)]


def test_what_stays_is_said_once():
    assert change_text("a", "a") == "a"
    assert change_text(None, "a") == "a"
    assert change_text("a", "b") == "a → b"


def test_each_kernel_is_named_with_its_instructions():
    counts = {"Scale": ({"LDG": 4}, {"LDG": 1, "FFMA": 2}), "same": ({"BAR": 1}, {"BAR": 1})}
    said, more, same = instructions_section(counts, "sm_90").parts
    assert said == Paragraph("Scale on sm_90: LDG -3, FFMA +2")
    assert same == Paragraph("same on sm_90: the same instructions as often")
    assert isinstance(more, More)
    [table] = more.parts
    assert isinstance(table, Table)
    assert table.rows[0] == ("all", "4", "3", "-1")
    assert table.caption.startswith("Scale on sm_90: ")


def test_the_lane_of_a_pool_is_named():
    where = Where(host="node7", lane="node7/5def6c/0", gpu="GPU-1", pid=41)
    sections = {section.name: section for section in verdict_view(faster().made_in(where), "0123").sections}
    [facts] = [part for part in sections["circumstances"].parts if isinstance(part, FactList)]
    assert dict(facts.rows)["lane"] == ("node7/5def6c/0", "process 41 on node7")
