"""Random messages to the language server: `python -m tests.bench.protocol_fuzz [--record]`.

Malformed, unordered, cancelled and oversized messages among random edits, in each position encoding, as
`tests/lsp/fuzzing.py` has them. A line for each encoding says what was sent and how long it took; whatever the server
answers otherwise than the specification says, and any difference between its texts and the client's, ends the program.
Options: --messages COUNT for each encoding (default 10000), --seed NUMBER (default 0), --record.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.record import record
from tests.lsp.fuzzing import fuzz

ENCODINGS = ("utf-8", "utf-16", "utf-32")


async def main() -> None:
    """Send it all, print what was sent and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    figures: dict[str, Any] = {"seed": given.seed}
    for encoding in ENCODINGS:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            found = await fuzz(encoding, Path(folder), given.messages, given.seed)
            figures[encoding] = {"seconds": round(time.perf_counter() - began, 1)} | found
        print(
            f"{encoding:<7}", *(f"{name}: {value}" for name, value in figures[encoding].items()), sep=", ", flush=True
        )
    if given.record:
        record("protocol_fuzz", figures)


if __name__ == "__main__":
    asyncio.run(main())
