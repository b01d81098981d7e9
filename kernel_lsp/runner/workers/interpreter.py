"""Triton's interpreter, for machines without a GPU. The nursery has set TRITON_INTERPRET before Triton was imported."""

from typing import Any

from triton.runtime.autotuner import Autotuner


def choose_first_config() -> None:
    """Have `@triton.autotune` take its first configuration: there is no GPU to time them on, and no driver to ask."""

    def equal(_: Any, **__: Any) -> list[float]:
        return [1.0, 1.0, 1.0]

    Autotuner.do_bench = property(lambda _: equal)  # type: ignore[assignment]
