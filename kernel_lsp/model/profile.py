"""Model profiles: one data file for each model, so that adding one needs no code."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_lsp.errors import ConfigurationError

Dtype = Literal["bf16", "fp8", "4bit"]
PROFILES = Path(__file__).parent / "profiles"


class Part(BaseModel):
    """Frozen; an unknown key is an error. A later table of a profile is another `Part`, and a field of `Profile`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Memory(Part):
    """Memory that the model takes on a GPU."""

    weights_gib: dict[Dtype, float]
    """GiB of weights by the type they are held in."""
    cache_bytes_per_token: int = Field(gt=0)
    """Bytes of keys and values for one token, in 16 bits."""
    overhead_gib: float = Field(default=4.0, ge=0)
    """GiB for activations, graphs and the CUDA context, on each GPU."""


class ContextLength(Part):
    """Lengths in tokens, prompt and answer together."""

    wished: int = Field(gt=0)
    """Length that the model works well with."""
    least: int = Field(gt=0)
    """Shortest useful length: below it answers would be cut off."""
    most: int = Field(gt=0)
    """Longest length: that of its training, or the reach of its position encoding."""
    sequences: int = Field(default=8, gt=0)
    """Number of answers generated side by side that memory is reserved for."""


class Serving(Part):
    """Options for serving it with vLLM."""

    arguments: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""
    reasoning_parser: str | None = None
    """vLLM's name for the way that the model marks its reasoning; None for a model that does not reason."""


class Drawing(Part):
    """Sampling parameters."""

    temperature: float | None = None
    """None leaves it to the model's own defaults."""
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int = Field(default=8192, gt=0)
    """Length of an answer, reasoning included, in tokens."""


class Talk(Part):
    """The prompts for the model, and the format of its answers."""

    format: Literal["kernelbench-cuda", "kernelbench-triton", "edits"] = "edits"
    """`edits` to the user's files, or a whole `ModelNew` for a `Model`, in CUDA or Triton."""
    history_tokens: int = Field(default=8192, gt=0)
    """Prompt up to which earlier turns are kept; whole turns are dropped beyond it, the oldest first."""
    example_always: bool = False
    """True to keep the worked example of the first turn in later prompts."""
    turns: int = Field(default=8, gt=0)
    """Answers in a row that the model was trained for, or after which no more gain was found."""


class Profile(Part):
    """One model by name. `memory` is None where it depends on the weights that a user brings."""

    id: str
    title: str
    """One line for people."""
    weights: str | None = None
    """Name of the weights, as `hf download` takes it; None where the user names a folder."""
    confirmed: bool = True
    """True if name and base of the weights are known from the weights' own page."""
    base: str | None = None
    """The model that it was trained from."""
    architectures: tuple[str, ...] = ()
    """Accepted values of `architectures` in `config.json`; empty accepts all."""
    adapter: bool = False
    """True if the weights are a LoRA adapter of `base`."""
    memory: Memory | None = None
    context: ContextLength
    serving: Serving = Serving()
    drawing: Drawing = Drawing()
    talk: Talk = Talk()


def read_profile(path: Path) -> Profile:
    """Return the profile in a file.

    Raises:
        ConfigurationError: it cannot be read, or is no profile.
    """
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"The profile cannot be read: {error}.", path) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"`{where}` in the profile is not usable: {first['msg']}.", path) from error


@cache
def profiles() -> dict[str, Profile]:
    """Return the profiles that come with this program, by id."""
    found = (read_profile(path) for path in sorted(PROFILES.glob("*.toml")))
    return {profile.id: profile for profile in found}


def find_profile(name: str) -> Profile:
    """Return a profile by its id, or by its file (`mine.toml`).

    Raises:
        ConfigurationError: there is none, or it is no profile.
    """
    if name.endswith(".toml"):
        return read_profile(Path(name).expanduser())
    if name not in profiles():
        fix = f"There are: {', '.join(profiles())}; or name a file of your own that ends in .toml."
        raise ConfigurationError(f"There is no profile `{name}`.", fix=fix)
    return profiles()[name]
