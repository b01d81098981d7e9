"""Starts, awaits, adopts and stops a model server."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import find_gpus, free_bytes
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.model.adapters import base_identity, list_adapters
from kernel_lsp.model.endpoint import Endpoint, endpoint_at
from kernel_lsp.model.errors import DoesNotFitError, RefusedConnectionError, StartFailedError, WrongArchitectureError
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.model.servers import ModelServer, is_kept, read_server, servers_folder
from kernel_lsp.runner.sessions import kill_session
from kernel_model_server.fit import ANYTHING, Card, ServingOption, Wish, choose
from kernel_model_server.vllm import (
    Loading,
    Vllm,
    command,
    context_of,
    environment,
    find_vllm,
    last_error,
    loading,
    rank_for,
    rank_of,
)
from kernel_model_server.weights import Weights, find_weights

_START_SECONDS = 1800.0  # 130 GB from a slow disk
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_LONGEST_SOCKET = 100  # bytes; Linux takes 107


class Order(BaseModel):
    """A keeper's order: `command` is empty for a server that somebody else started; `parent` may be None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: ModelServer
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A server before its start.

    `said` is the profile as the user named it; `choice` is None on a CPU; `rank` is the highest of adapters that it can
    load, and None if it loads none.
    """

    name: str
    said: str
    profile: Profile
    weights: Weights
    vllm: Vllm
    choice: ServingOption | None
    adapters: Mapping[str, Path]
    rank: int | None = None

    @property
    def why(self) -> str:
        """Return the way it is served, on one line."""
        return str(self.choice) if self.choice else "bf16 on the CPU, for tries and tests: vLLM here is built for CPUs"


def plan(
    what: str | None,
    settings: Settings,
    *,
    profile: str | None = None,
    weights: Path | None = None,
    adapters: Mapping[str, Path] | None = None,
    ready: bool | None = None,
    wish: Wish = ANYTHING,
) -> ServerPlan:
    """Return the plan for serving a model here.

    Args:
        what: a profile, or the folder of a model; by default the profile of the settings.
        settings: those in force.
        profile: the profile of a model that is named by its folder; `general` by default.
        weights: the folder of a profile's model.
        adapters: folders of LoRA adapters by name.
        ready: True to be ready for adapters that are loaded later; None if some of this model are on this machine.
        wish: the user's wishes.

    Raises:
        ModelError: the weights, vLLM or the room for them are missing.
        ConfigurationError: there is no such profile.
    """
    if what is not None and is_folder(what):
        said, weights = profile or "general", Path(what)
        known, name = find_profile(said), name_of(weights.absolute().name)
    else:
        said = what or profile or settings.model.profile
        known = find_profile(said)
        name = known.id
    found = find_weights(known, settings, weights)
    vllm = find_vllm(settings)
    choice = None if vllm.cpu else fit(known, found, settings, wish)
    said = str(Path(said).expanduser().absolute()) if said.endswith(".toml") else said
    rank = _rank(settings, found, adapters or {}, ready)
    return ServerPlan(name, said, known, found, vllm, choice, dict(adapters or {}), rank)


def _rank(settings: Settings, weights: Weights, adapters: Mapping[str, Path], ready: bool | None) -> int | None:
    """Return the highest rank of adapters to be ready for, a new one too; None for none."""
    ranks = [rank_of(folder) for folder in adapters.values()]
    if ready is not False:
        base = base_identity(weights.folder)
        ranks += [one.card.rank for one in list_adapters(settings.paths.data) if one.card.base == base]
    if ready or ranks:
        return rank_for([*ranks, settings.learn.rank] if ready else ranks)
    return None


def fit(profile: Profile, weights: Weights | None, settings: Settings, wish: Wish = ANYTHING) -> ServingOption:
    """Return the way of serving a model on this machine's GPUs; without weights by the profile's own table.

    Raises:
        DoesNotFitError: no way fits.
        ConfigurationError: the setting `gpu` names no GPU.
    """
    memory = weights.memory if weights else profile.memory
    if memory is None:
        fix = "Name its folder: `--weights FOLDER`."
        raise DoesNotFitError(f"The memory that {profile.id} needs is not known without its weights.", fix=fix)
    cards = [Card(gpu, free_bytes(gpu)) for gpu in find_gpus()]
    used = choose_gpu(settings.gpu)
    judge = used.uuid if used else None
    context = profile.context
    if weights and weights.most_context:
        most = min(context.most, weights.most_context)
        shorter = {"most": most, "wished": min(context.wished, most), "least": min(context.least, most)}
        context = context.model_copy(update=shorter)
    return choose(
        memory,
        context,
        cards,
        judge=judge,
        reserve=settings.model.reserve,
        heads=weights.heads if weights else 0,
        stored=weights.stored if weights else None,
        wish=wish,
    )


def start(plan: ServerPlan, *, attached: bool = False) -> Path:
    """Start a keeper with its server and return its folder at once, or the folder of one that is already running.

    Args:
        plan: the server's plan.
        attached: True to end it with this process; otherwise it stays until it is stopped.

    Raises:
        ModelError: an adapter or a package is missing.
        ConfigurationError: the folder of servers cannot be used.
    """
    folder = servers_folder() / plan.name
    if is_kept(folder):
        return folder
    key = secrets.token_urlsafe(32)
    arguments = command(
        plan.vllm, plan.weights, plan.profile, plan.choice, name=plan.name, adapters=plan.adapters, rank=plan.rank
    )
    socket = _fresh(folder) / "socket"
    server = ModelServer(
        name=plan.name,
        profile=plan.said,
        models=(plan.name, *plan.adapters),
        uds=socket,
        key=key,
        gpus=tuple(card.gpu.uuid for card in plan.choice.cards) if plan.choice else (),
        pauses=True,
        sleeps="--enable-sleep-mode" in arguments,
        choice=plan.why,
        context=context_of(plan.weights, plan.choice),
        base=base_identity(plan.weights.folder),
        rank=plan.rank,
        folder=folder,
    )
    _start_keeper(
        Order(
            server=server,
            command=(*arguments, "--uds", str(socket)),
            environment=environment(plan.vllm, plan.choice, key),
            parent=os.getpid() if attached else None,
        )
    )
    return folder


def adopt(url: str, settings: Settings, *, model: str, key: str | None = None) -> Path:
    """Watch over a server on this machine that somebody else started, so that the judge takes turns with it.

    Its GPUs are unknown, so it counts as using all of them.

    Args:
        url: its address, or `unix:/path`.
        settings: those in force.
        model: the name that it serves.
        key: its API key.

    Raises:
        RefusedConnectionError: nothing answers there.
        ConfigurationError: it is on another machine, or the folder of servers cannot be used.
    """
    name = name_of(f"adopted-{model}")
    folder = servers_folder() / name
    if is_kept(folder):
        return folder
    endpoint = endpoint_at(url, model, key)
    if not endpoint.local:
        fix = "Set `model.endpoint` to it; it does not share this machine's GPUs."
        raise ConfigurationError(f"`{url}` is on another machine.", fix=fix)
    server = ModelServer(
        name=name,
        profile=settings.model.profile,
        models=(model,),
        uds=endpoint.uds,
        url=None if endpoint.uds else endpoint.url,
        key=key,
        gpus=tuple(gpu.uuid for gpu in find_gpus()),
        pauses=_can_pause(endpoint),
        choice="started by somebody else",
        folder=_fresh(folder),
    )
    _start_keeper(Order(server=server))
    return folder


def wait_until_ready(
    folder: Path, on_loading: Callable[[Loading], None] = lambda _: None, seconds: float = _START_SECONDS
) -> ModelServer:
    """Wait for a server that was started.

    Raises:
        StartFailedError: it ended, or was not ready in time; the message says why.
        DoesNotFitError: the GPU's memory did not suffice after all.
        WrongArchitectureError: vLLM does not know the model.
    """
    until = time.monotonic() + seconds
    began = False
    while time.monotonic() < until:
        if (server := read_server(folder)) is not None:
            return server
        log = _log(folder)
        on_loading(loading(log))
        began = began or is_kept(folder)
        if began and not is_kept(folder):
            raise _failure(folder, log)
        time.sleep(_LOOK_SECONDS)
    stop(folder)
    fix = f"Its log is {folder / 'log'}."
    raise StartFailedError(f"The model server was not ready after {seconds:g} s and was stopped.", fix=fix)


def stop(folder: Path) -> bool:
    """End a server and its keeper, and wait until they are gone; return False if none was running.

    A server that somebody else started goes on, but is no longer watched.
    """
    try:
        keeper = int((folder / "kept").read_text())
    except (OSError, ValueError):
        return False
    if not is_kept(folder):
        return False
    server = read_server(folder)
    os.kill(keeper, signal.SIGTERM)
    until = time.monotonic() + _STOP_SECONDS
    while is_kept(folder):
        if time.monotonic() > until:
            os.kill(keeper, signal.SIGKILL)
            if server is not None and server.pid is not None:
                kill_session(server.pid)
        time.sleep(_LOOK_SECONDS)
    return True


def stay(folder: Path) -> None:
    """Wait until a server ends; an interrupt ends it.

    Raises:
        StartFailedError: it ended by itself.
    """
    try:
        while is_kept(folder):
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        stop(folder)
        raise
    raise StartFailedError(f"The model server ended: {last_error(_log(folder))}.", fix=f"Its log is {folder / 'log'}.")


def is_folder(what: str) -> bool:
    """Return True if a folder of weights is meant, False for a profile."""
    return "/" in what or what.startswith(("~", ".")) or (Path(what).is_dir() and not what.endswith(".toml"))


def name_of(text: str) -> str:
    """Return a server name that can be a folder's."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "model"


def _can_pause(endpoint: Endpoint) -> bool:
    """Return True if it runs in vLLM's development mode."""
    way = httpx.HTTPTransport(uds=str(endpoint.uds), verify=False) if endpoint.uds else None
    try:
        with httpx.Client(base_url=endpoint.url, transport=way, trust_env=False) as http:
            return http.get("/is_paused").is_success
    except httpx.TransportError as error:
        fix = "Start it first, or fix the address."
        raise RefusedConnectionError(f"No model server listens at {endpoint}.", fix=fix) from error


def _fresh(folder: Path) -> Path:
    """Return an empty folder for a server."""
    if len(str(folder / "socket").encode()) > _LONGEST_SOCKET:
        fix = "Set XDG_RUNTIME_DIR to a folder with a short name."
        raise ConfigurationError("This path is too long for a socket.", folder, fix=fix)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


def _start_keeper(order: Order) -> None:
    folder = order.server.folder
    (folder / "order.json").touch(mode=0o600)
    (folder / "order.json").write_text(order.model_dump_json())
    with (folder / "log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "kernel_model_server.keeper", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=order.parent is None,
        )
    until = time.monotonic() + _STOP_SECONDS
    while not is_kept(folder):
        if keeper.poll() is not None or time.monotonic() > until:
            raise _failure(folder, _log(folder))
        time.sleep(_LOOK_SECONDS)


def _log(folder: Path) -> str:
    try:
        return (folder / "log").read_text(errors="replace")
    except OSError:
        return ""


def _failure(folder: Path, log: str) -> StartFailedError | DoesNotFitError | WrongArchitectureError:
    said, fix = last_error(log), f"Its log is {folder / 'log'}."
    if re.search(r"out of memory|No available memory|Free memory on device|larger than the available KV cache", said):
        fix = f"Free some GPU memory, or ask for less with `--context`. {fix}"
        return DoesNotFitError(f"The GPU's memory did not suffice: {said}.", fix=fix)
    if re.search(r"architectures? .*not supported|Unrecognized model|does not recognize this architecture", said):
        return WrongArchitectureError(f"vLLM cannot serve this model: {said}.", fix=fix)
    return StartFailedError(f"The model server ended before it was ready: {said}.", fix=fix)
