"""Turns of a model in a store, as searches leave them."""

import json
from pathlib import Path
from typing import Any

from kernel_lsp.store.store import Store
from tests.unit.store.test_store import verdict

JUDGE = "a" * 16


def answer(number: int) -> str:
    """An answer that resembles no other."""
    words = " ".join(f"step_{number}_{at}();" for at in range(40))
    return f"```\n{words}\n```\nVariant {number}."


def told(store: Store, folder: Path, session: str, number: int, **said: Any) -> None:
    """Store a turn: by default one that was judged FASTER, 1.5x, in full."""
    low = said.pop("low", 1.4)
    result, judged = said.pop("result", "FASTER"), said.pop("judged", True)
    text = said.pop("answer", answer(hash((session, number)) % 10**6))
    kernel, evidence = said.pop("kernel", "k"), said.pop("evidence", f"{session}/{number}")
    rejected = result in ("REJECTED", "NOT_JUDGED")
    asked = [{"role": "user", "content": f"make {kernel} faster"}]
    for before in said.pop("before", ()):
        asked += [{"role": "assistant", "content": before}, {"role": "user", "content": "again"}]
    outcome = {"result": result, "stage": None if rejected else said.pop("stage", "timed"), "judged": judged}
    if not rejected:
        outcome |= {"speedup": low + 0.1, "interval": [low, low + 0.2]}
    where = {
        "kernel": str(said.pop("path", folder / f"{kernel}.cu")),
        "language": "cuda",
        "gpu": "NVIDIA H200",
        "judge": said.pop("judge", JUDGE),
        "collect": said.pop("collect", True),
        "model": "tiny",
        "profile": "general",
        "complete": said.pop("complete", True),
    }
    document = None
    if judged and not rejected:
        document = verdict(evidence, verdict=result)
        document["evidence"] |= {"candidate_digest": evidence, "baseline_digest": kernel}
        store.save_verdict(document)
    assert not said, said
    store.append_turn(
        session,
        "c",
        prompt=json.dumps(asked),
        answer=f"<think>\nhm\n</think>\n{text}",
        verdict=document["id"] if document else None,
        number=number,
        target=kernel * 64,
        outcome=outcome,
        circumstances=where,
    )
