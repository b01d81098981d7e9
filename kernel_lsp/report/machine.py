"""Results for machines: one JSON object or list on standard output, in the shape of the records themselves."""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass

from pydantic import BaseModel

from kernel_lsp.judge.verdict import Verdict


def verdict_json(verdict: Verdict) -> str:
    """One object with all fields of the verdict; figures that are not finite are null, as JSON has none."""
    return verdict.model_dump_json(indent=2)


def records_json(records: Sequence[object]) -> str:
    """A list of records, each a dataclass or a pydantic model."""
    return json.dumps([_plain(record) for record in records], indent=2, default=str)


def _plain(record: object) -> object:
    if isinstance(record, BaseModel):
        return record.model_dump(mode="json")
    return asdict(record) if is_dataclass(record) and not isinstance(record, type) else record
