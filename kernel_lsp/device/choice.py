"""Chooses the GPU to use, and the device that candidates are built for: decided here and nowhere else."""

from collections.abc import Container, Sequence
from dataclasses import replace

from kernel_lsp.device.architectures import base_arch
from kernel_lsp.device.device import DEFAULT_ARCH, Device, device_named, device_of
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import CannotJudgeError, ConfigurationError


def choose_gpu(wanted: str | None) -> Gpu | None:
    """Return the GPU to use: the wanted one, else the first; None if there is none and none is wanted.

    Args:
        wanted: the setting `gpu`: an index of `nvidia-smi`, a UUID or its beginning, or a name or part of one, which
            selects the first match.

    Raises:
        ConfigurationError: no GPU that this process may use matches; the message lists them.
    """
    gpus = find_gpus()
    if wanted is None:
        return next(iter(gpus), None)
    by_index = [gpu for gpu in gpus if str(gpu.index) == wanted]
    by_uuid = [gpu for gpu in gpus if wanted.startswith("GPU-") and gpu.uuid.startswith(wanted)]
    by_name = [gpu for gpu in gpus if not wanted.isdecimal() and _words(wanted) and _words(wanted) <= _words(gpu.name)]
    whole = [gpu for gpu in by_name if _words(wanted) == _words(gpu.name)]
    found = [*by_index, *by_uuid, *whole, *by_name]
    if not found:
        listed = "; ".join(f"{gpu.index}: {gpu.name}, {gpu.uuid}" for gpu in gpus)
        fix = f"There are: {listed}." if gpus else "There is none that this process may use; leave the setting out."
        raise ConfigurationError(f"`gpu = {wanted}` names no GPU of this machine.", fix=fix)
    return found[0]


def choose_gpus(wanted: str | None, count: int | None) -> tuple[Gpu, ...]:
    """Return GPUs to use side by side: the one of `choose_gpu`, and others up to `count`; empty without a GPU.

    Raises:
        ConfigurationError: see `choose_gpu`.
        CannotJudgeError: there are fewer than `count`.
    """
    first, found = choose_gpu(wanted), find_gpus()
    if count is not None and count > len(found):
        raise CannotJudgeError(f"{count} GPUs are asked for, and this machine shows {len(found)}.", fix="See --gpus.")
    return tuple(sorted(found, key=lambda gpu: gpu != first))[: count or 1]


def equal_gpus(first: Gpu | None, most: int, taken: Container[str] = ()) -> tuple[Gpu, ...]:
    """Return further GPUs of the same kind as the first, at most `most`; `taken` are UUIDs of those to leave alone."""
    found = [gpu for gpu in find_gpus() if first is not None and gpu.uuid != first.uuid and gpu.name == first.name]
    return tuple(gpu for gpu in found if gpu.uuid not in taken)[:most]


def target_device(gpu: Gpu | None, architectures: Sequence[str]) -> Device:
    """Return the device that candidates are built for.

    Args:
        gpu: the GPU in use, if any: then candidates are built for it, perhaps as `sm_90a` if `architectures` says so.
        architectures: the setting `arch`. Without a GPU the first of them counts, else `DEFAULT_ARCH`.

    Raises:
        ValueError: the setting has an unknown name; loading the settings rejects it before.
    """
    devices = [device_named(name) for name in architectures]
    if gpu is not None:
        return device_of(gpu, next((d.arch for d in devices if base_arch(d.arch) == gpu.arch), None))
    return devices[0] if devices else replace(device_named(DEFAULT_ARCH), assumed=True)


def find_device(wanted: str | None, architectures: Sequence[str]) -> Device:
    """Return the device that candidates are built for, by the settings `gpu` and `arch`.

    Raises:
        ConfigurationError: see `choose_gpu`.
    """
    return target_device(choose_gpu(wanted), architectures)


def target_devices(wanted: str | None, architectures: Sequence[str]) -> dict[str, Device]:
    """Return the devices that a file is compiled for, by name: each of `arch`, else the GPU, else the default.

    If an architecture is the GPU's, the GPU itself is returned for it.

    Args:
        wanted: the setting `gpu`.
        architectures: the setting `arch`.

    Raises:
        ConfigurationError: see `choose_gpu`.
    """
    gpu = choose_gpu(wanted)
    if not architectures:
        device = target_device(gpu, ())
        return {device.arch: device}

    def meant(device: Device) -> Device:
        return device_of(gpu, device.arch) if gpu and base_arch(device.arch) == gpu.arch else device

    return {name: meant(device_named(name)) for name in architectures}


def _words(name: str) -> frozenset[str]:
    return frozenset(name.lower().replace("-", " ").split())
