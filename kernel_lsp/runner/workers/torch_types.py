"""Typed wrappers of torch functions that torch ships without types. Worker processes only.

Each is looked up when it is called, as torch's own callers do.
"""

from typing import Protocol, cast

import torch
from torch import Tensor


class DeviceProperties(Protocol):
    """Properties of a GPU."""

    multi_processor_count: int
    L2_cache_size: int


class _Cuda(Protocol):
    def get_device_properties(self, device: int) -> DeviceProperties: ...


class _Linalg(Protocol):
    def vector_norm(self, x: Tensor) -> Tensor: ...


class _Random(Protocol):
    def manual_seed(self, seed: int) -> object: ...


class _Listable(Protocol):
    def tolist(self) -> object: ...


def device_properties(device: int = 0) -> DeviceProperties:
    """Return the properties of a GPU that this process sees."""
    return cast(_Cuda, torch.cuda).get_device_properties(device)


def norm(values: Tensor) -> float:
    """Return the Euclidean norm of all elements."""
    return float(cast(_Linalg, torch.linalg).vector_norm(values))


def seed_random_numbers(seed: int) -> None:
    """Seed torch's random numbers, on GPUs too."""
    cast(_Random, torch).manual_seed(seed)


def nested_list(values: Tensor) -> object:
    """Return the elements as nested lists, one level for each dimension."""
    return cast(_Listable, values).tolist()
