"""The base of all records that are stored."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record with strict fields: evidence is written once and read back unchanged, infinities included."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


Unbounded = Annotated[float, "infinities and NaN are texts in JSON"]
