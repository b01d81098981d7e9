"""What is known of a model: a file of data for each, so that adding one touches no code."""

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
    """What the model takes on a GPU."""

    weights_gib: dict[Dtype, float]
    """GiB of weights by the type they are held in."""
    cache_bytes_per_token: int = Field(gt=0)
    """Bytes of keys and values for one token, in 16 bits."""
    overhead_gib: float = Field(default=4.0, ge=0)
    """GiB for activations, graphs and the CUDA context, on each GPU."""


class Context(Part):
    """Lengths in tokens, prompt and answer together."""

    wished: int = Field(gt=0)
    """What the model works well with."""
    least: int = Field(gt=0)
    """Below it the model is of no use: its answers would be cut off."""
    most: int = Field(gt=0)
    """What it was trained for, or what its position encoding reaches."""
    sequences: int = Field(default=8, gt=0)
    """Answers generated side by side that there should be memory for."""


class Serving(Part):
    """How vLLM is told to serve it."""

    arguments: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""
    reasoning_parser: str | None = None
    """vLLM's name for the way that the model marks its reasoning; None for a model that does not reason."""


class Drawing(Part):
    """How an answer is drawn from the model."""

    temperature: float | None = None
    """None leaves it to the model's own defaults."""
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int = Field(default=8192, gt=0)
    """Length of an answer, reasoning included, in tokens."""


class Talk(Part):
    """How the model is asked, and what its answers look like."""

    format: Literal["kernelbench-cuda", "kernelbench-triton", "edits"] = "edits"
    """`edits` to the user's files, or a whole `ModelNew` for a `Model`, in CUDA or Triton."""
    history_tokens: int = Field(default=8192, gt=0)
    """Prompt up to which earlier turns are kept; whole turns are dropped beyond it, the oldest first."""
    example_always: bool = False
    """Whether the worked example of the first turn stays in the prompts of later ones."""
    turns: int = Field(default=8, gt=0)
    """Answers in a row for which the model was trained, or after which nothing more was found to come."""


class Profile(Part):
    """One model by name. `memory` is None where it depends on the weights that a user brings."""

    id: str
    title: str
    """One line for people."""
    weights: str | None = None
    """Name of the weights, as `hf download` takes it; None where the user names a folder."""
    confirmed: bool = True
    """Whether name and base of the weights are known from the weights' own page."""
    base: str | None = None
    """The model that it was trained from."""
    architectures: tuple[str, ...] = ()
    """Accepted values of `architectures` in `config.json`; empty accepts all."""
    adapter: bool = False
    """Whether the weights are a LoRA adapter of `base`."""
    memory: Memory | None = None
    context: Context
    serving: Serving = Serving()
    drawing: Drawing = Drawing()
    talk: Talk = Talk()


def read_profile(path: Path) -> Profile:
    """A profile from its file.

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
    """The profiles that come with this program, by id."""
    found = (read_profile(path) for path in sorted(PROFILES.glob("*.toml")))
    return {profile.id: profile for profile in found}


def find_profile(name: str) -> Profile:
    """A profile by its id, or by its file (`mine.toml`).

    Raises:
        ConfigurationError: there is none, or it is no profile.
    """
    if name.endswith(".toml"):
        return read_profile(Path(name).expanduser())
    if name not in profiles():
        cure = f"There are: {', '.join(profiles())}; or name a file of your own that ends in .toml."
        raise ConfigurationError(f"There is no profile `{name}`.", cure=cure)
    return profiles()[name]
