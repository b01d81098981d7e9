"""Every rule has a stable id, a name and a whole page."""

import ast
import re

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.rules.catalog import RULES, find_rule
from kernel_lsp.rules.rule import Group
from kernel_lsp.source.kernel import Language

DECADES = {
    Group.COMPILE: 0,
    Group.MEMORY: 1,
    Group.CORRECTNESS: 2,
    Group.PERFORMANCE: 3,
    Group.REGRESSION: 4,
    Group.HOUSEKEEPING: 5,
    Group.ASYNCHRONOUS: 6,
}


def test_ids_and_names_are_unique_and_in_order():
    assert list(RULES) == sorted(RULES)
    assert all(key == rule.id for key, rule in RULES.items())
    assert len({rule.name for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_rule_is_told_whole(rule):
    assert re.fullmatch(r"KL\d{3}", rule.id)
    assert int(rule.id[2:]) // 10 == DECADES[rule.group]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.summary.endswith(".")
    assert "\n" not in rule.summary
    assert len(rule.summary) <= 110
    assert rule.before != rule.after
    for heading in ("What it reports", "Why it matters", "Example", "What usually fixes it", "To silence it"):
        assert f"\n## {heading}\n" in rule.page
    assert rule.page.count("```") == 4
    if rule.language is Language.TRITON:
        for code in (rule.before, rule.after):
            ast.parse(code if not code.rstrip().endswith(("end", ":")) else f"{code}\n    pass")


def test_a_rule_is_found_by_id_or_name():
    assert find_rule("kl012").name == "uninitialised-global"
    assert find_rule("Bank-Conflict").id == "KL031"
    with pytest.raises(ConfigurationError, match="Did you mean bank-conflict"):
        find_rule("bank-conflicts")
    with pytest.raises(ConfigurationError, match="no rule `KL999`"):
        find_rule("KL999")


def test_a_finding_carries_its_rule():
    found = find_rule("KL031").at("k.cu", 7, "conflicts", column=3, end=(7, 9))
    assert (found.path, found.line, found.column, found.end_column) == ("k.cu", 7, 3, 9)
    assert (found.code, found.severity, found.message) == ("KL031", "warning", "conflicts")
