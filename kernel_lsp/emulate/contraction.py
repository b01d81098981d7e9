"""Contraction: products and sums that ptxas fuses into one `fma`, as PTX allows if neither names a rounding.

A product is a `mul`, `div.full` or `div.approx` of f32, whose last step is a multiplication; a sum is an `add` or `sub`
of f32. ptxas joins a product with all of its readers or with none: each has to be a sum with the same `.ftz` in the
same stretch of code without branches. PTX leaves this to the assembler; that this one does so is read from its machine
code (`tests/unit/emulate/test_emulated_contraction.py`). Fusions across copies and
negations, and across iterations of loops that it unrolls, are not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_lsp.emulate.program import (
    Address,
    Arguments,
    Function,
    Negated,
    Operand,
    Pair,
    PtxInstruction,
    Register,
    Symbol,
    Vector,
)

_PRODUCTS = {"mul.f32", "div.full.f32", "div.approx.f32"}
_SUMS = {"add.f32", "add.sat.f32", "sub.f32", "sub.sat.f32"}
_ENDS = {"bra", "brx", "ret", "exit", "call", "trap", "membar", "fence"}
# ptxas compiles these to code with branches, except their approximate forms.
_BRANCHING = {"div", "rem", "rcp", "sqrt"}


@dataclass(frozen=True, slots=True)
class Contraction:
    """The contractions of a function, by position in its code.

    Attributes:
        products: registers of products that are not rounded, but pass their factors on.
        sums: sum that takes a product's factors -> index of the product among its two terms.
    """

    products: dict[int, str] = field(default_factory=dict[int, str])
    sums: dict[int, int] = field(default_factory=dict[int, int])


def contract(function: Function) -> Contraction:
    """Return the contractions that ptxas makes in a function."""
    code = function.code
    products: dict[str, int] = {}
    sums = dict(_candidates(function, products))
    if not sums:
        return Contraction()
    wanted = Counter(name for terms in sums.values() for name in terms)
    named = Counter(name for each in code for operand in each.operands for name in _names(operand) if name in wanted)
    # Written once, and read by these sums only.
    whole = {name for name, times in wanted.items() if named[name] == times + 1}
    for terms in sums.values():
        if len(terms) == 2 and whole.issuperset(terms):  # a sum takes one: that with fewer readers, else its first term
            first, second = terms
            whole.discard(first if wanted[first] > wanted[second] else second)
    taken = {
        at: code[at].operands[1:].index(Register(name)) for at, terms in sums.items() for name in terms if name in whole
    }
    return Contraction({products[name]: name for name in whole}, taken)


def _candidates(function: Function, products: dict[str, int]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Sums with the products among their terms, from one stretch of code; `products` gets the place of each."""
    targets = _targets(function)
    made: dict[str, bool] = {}  # the products of this stretch; True if they flush subnormal numbers
    for at, each in enumerate(function.code):
        if at in targets:
            made.clear()
        name = each.opcode.partition(".")[0]
        plain = each.opcode.replace(".ftz", "")
        ftz = plain != each.opcode
        if plain in _PRODUCTS:
            if each.guard is None and isinstance(target := each.operands[0], Register):
                made[target.name], products[target.name] = ftz, at
        elif plain in _SUMS:
            terms = tuple(x.name for x in each.operands[1:] if isinstance(x, Register) and made.get(x.name) == ftz)
            if terms and len(set(terms)) == len(terms):
                yield at, terms
        elif name in _ENDS or (name in _BRANCHING and ".approx" not in plain):
            made.clear()


def _targets(function: Function) -> set[int]:
    """Return the targets of branches; other labels are for debuggers."""
    names = {x.name for each in function.code if _is_branch(each) for x in each.operands if isinstance(x, Symbol)}
    names.update(*function.tables.values())
    return {function.labels[name] for name in names if name in function.labels}


def _is_branch(instruction: PtxInstruction) -> bool:
    return instruction.opcode.startswith("bra")


def _names(operand: Operand) -> Iterator[str]:
    """Yield the registers of an operand, as often as it names them."""
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Address):
        yield from _names(operand.base)
    elif isinstance(operand, Negated):
        yield from _names(operand.operand)
    elif isinstance(operand, Pair):
        yield from _names(operand.first)
        yield from _names(operand.second)
    elif isinstance(operand, Vector | Arguments):
        for item in operand.items:
            yield from _names(item)
