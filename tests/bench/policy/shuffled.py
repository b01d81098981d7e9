"""`kernel-lsp` whose policies are paid at random: the advantages of each group are dealt anew. For a control."""

import random
from collections.abc import Sequence
from unittest.mock import patch

from kernel_lsp.cli.main import main
from kernel_lsp.learn import grpo
from kernel_lsp.learn.reward import RewardedTurn, advantages

_chance = random.Random(0)


def shuffled(samples: Sequence[RewardedTurn]) -> list[float]:
    """Return the advantages of a group in an order that has nothing to do with its answers."""
    found = advantages(samples)
    _chance.shuffle(found)
    return found


if __name__ == "__main__":
    with patch.object(grpo, "advantages", shuffled):
        main()
