"""All rules by id."""

import difflib
from collections.abc import Iterable

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.rules import asynchronous, compiling, correctness, housekeeping, memory, performance, regression
from kernel_lsp.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.id: rule
    for rules in (
        compiling.RULES,
        memory.RULES,
        correctness.RULES,
        performance.RULES,
        regression.RULES,
        housekeeping.RULES,
        asynchronous.RULES,
    )
    for rule in rules
}
"""In the order of their ids."""


def find_rule(name: str) -> Rule:
    """Return the rule with this id (`KL012`, in any case) or name (`bank-conflict`).

    Raises:
        ConfigurationError: there is none.
    """
    if (rule := RULES.get(name.upper())) is not None:
        return rule
    by_name = {rule.name: rule for rule in RULES.values()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = difflib.get_close_matches(name.lower(), [*by_name, *(i.lower() for i in RULES)], 1)
    guess = f"Did you mean {near[0].upper() if near[0] not in by_name else near[0]}? " if near else ""
    raise ConfigurationError(f"There is no rule `{name}`.", fix=f"{guess}`kernel-lsp explain` lists them.")


def require_silenceable(ids: Iterable[str]) -> None:
    """Raise if the setting `check.ignore` names what it cannot silence.

    Raises:
        ConfigurationError: an id is that of no rule, or of one that must not be silenced.
    """
    for name in ids:
        rule = find_rule(name)
        if name != rule.id:
            raise ConfigurationError(f"`check.ignore` takes ids, and has `{name}`.", fix=f"Write {rule.id}.")
        if not rule.silenceable:
            fix = f"Leave it out of `check.ignore`; `kernel-lsp explain {name}` says what to do."
            raise ConfigurationError(f"{name} ({rule.name}) cannot be silenced.", fix=fix)
