"""The address of a model server: one on this machine, or one that the user has agreed to send source code to."""

import ipaddress
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import platformdirs

from kernel_lsp.config.settings import APP, Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.model.adapters import Adapter, find_adapter
from kernel_lsp.model.errors import ConsentError, NoServerError
from kernel_lsp.model.servers import ModelServer, running

_UNIX = "unix:"
_ANY_HOST = "http://localhost"  # over a socket the host is ignored


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model and the address of its server.

    Attributes:
        model: name of the model or adapter, as the server knows it.
        url: without `/v1`.
        uds: the Unix socket that it listens on, instead of a host.
        key: API key.
        folder: where a server that runs on this machine keeps its locks and log; None for others.
        profile: name of its profile (`kernel_lsp.model.profile.find_profile`).
        context: tokens of prompt and answer together; None if only the server knows.
        adapter: folder of the adapter named by `model`, which a client has the server load; None for what it serves.
    """

    model: str
    url: str = _ANY_HOST
    uds: Path | None = None
    key: str | None = field(default=None, repr=False)
    folder: Path | None = None
    profile: str = "general"
    context: int | None = None
    adapter: Path | None = None

    @property
    def local(self) -> bool:
        """Return True if no data sent to it leaves this machine."""
        return self.uds is not None or is_loopback(urlsplit(self.url).hostname or "")

    def __str__(self) -> str:
        return str(self.uds) if self.uds else self.url


ANY_NUMBER = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Connections to a server, which queues what it cannot answer yet: a short request is not to wait for long answers."""


def transport(endpoint: Endpoint) -> httpx.AsyncHTTPTransport | None:
    """Return the HTTP transport over its socket; None if it has a URL."""
    return transport_over(endpoint.uds)


def transport_over(socket: Path | None) -> httpx.AsyncHTTPTransport | None:
    """Return the HTTP transport over a socket; None without one.

    Nothing is encrypted there, and to read certificates, for each client anew, would take longer than an answer.
    """
    return httpx.AsyncHTTPTransport(uds=str(socket), verify=False, limits=ANY_NUMBER) if socket else None


def endpoint_of(server: ModelServer, model: str | None = None) -> Endpoint:
    """Return the endpoint of a server on this machine; `model` is one of its adapters, by default the model itself."""
    return Endpoint(
        model or server.models[0],
        server.url or _ANY_HOST,
        server.uds,
        server.key,
        server.folder,
        server.profile,
        server.context,
    )


def endpoint_at(address: str, model: str, key: str | None = None) -> Endpoint:
    """Return the endpoint at a URL, with or without `/v1`, or at `unix:/path`."""
    if address.startswith(_UNIX):
        return Endpoint(model, uds=Path(address.removeprefix(_UNIX)).expanduser(), key=key)
    return Endpoint(model, address.rstrip("/").removesuffix("/v1"), key=key)


def find_endpoint(settings: Settings) -> Endpoint:
    """Return the endpoint that the settings name, or else that of the server on this machine.

    With the setting `model.adapter` it is that adapter beside its base model.

    Raises:
        ConsentError: it is another machine's, and nobody has agreed to send source code there.
        NoServerError: none is running, or several are and the settings name none.
        ConfigurationError: the settings do not name an endpoint's model or key, or there is no such adapter.
    """
    wanted = settings.model
    adapter = find_adapter(settings.paths.data, wanted.adapter) if wanted.adapter else None
    if wanted.endpoint is None:
        return adapted(_base_here(adapter), adapter) if adapter else _running_here(wanted.name)
    if wanted.name is None:
        fix = "Set `model.name` to the name that the server knows it by."
        raise ConfigurationError("`model.endpoint` is set, but no model is named.", fix=fix)
    key = _key(wanted.key_variable)
    endpoint = replace(endpoint_at(wanted.endpoint, wanted.name, key), profile=wanted.profile)
    host = urlsplit(endpoint.url).hostname or ""
    if not endpoint.local and host not in allowed_hosts():
        message = f"`model.endpoint` is {host}: prompts with your source code would leave this machine."
        raise ConsentError(message, fix=f"If you agree to that, run `kernel-lsp model allow {host}` once.")
    if adapter is None:
        return endpoint
    if not endpoint.local:
        fix = "Unset `model.adapter`, and name what that server serves with `model.name`."
        raise ConfigurationError("An adapter of this machine cannot be loaded by a server elsewhere.", fix=fix)
    return adapted(endpoint, adapter)


def adapted(endpoint: Endpoint, adapter: Adapter) -> Endpoint:
    """Return the endpoint of an adapter at the server of its base model."""
    return replace(endpoint, model=adapter.served, adapter=adapter.weights)


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine, judged without a name service."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(file: Path | None = None) -> tuple[str, ...]:
    """Return the hosts that the user has agreed to send source code to; empty if the list cannot be read."""
    try:
        return tuple(str(host) for host in json.loads((file or _consents()).read_text())["hosts"])
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def allow_host(host: str, *, allowed: bool = True, file: Path | None = None) -> None:
    """Record that source code may be sent to a host from now on, or withdraw that.

    Raises:
        ConfigurationError: it is no host, or the list cannot be written.
    """
    if "/" in host or not (name := urlsplit(f"//{host}").hostname):
        raise ConfigurationError(f"`{host}` is not the name of a host.", fix="Write it as in `gpu-box.example.org`.")
    file = file or _consents()
    hosts = [known for known in allowed_hosts(file) if known != name] + ([name] if allowed else [])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"hosts": hosts}, indent=2) + "\n")
        draft.replace(file)
    except OSError as error:
        fix = "Check the folder's permissions and room."
        raise ConfigurationError(f"The consent cannot be kept: {error.strerror}.", file, fix=fix) from error


def _consents() -> Path:
    """Return the user's own file, beside the trusted folders, which no project's settings can move."""
    return platformdirs.user_config_path(APP) / "allowed-hosts.json"


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise ConfigurationError(
            f"`model.key_variable` names {variable}, which is not set.", fix=f"Set {variable} to the server's key."
        )
    return key


def _running_here(name: str | None) -> Endpoint:
    servers = running()
    if not servers:
        message = "No model server is running on this machine."
        raise NoServerError(message, fix="Start one with `kernel-lsp model serve`, or set `model.endpoint`.")
    found = [server for server in servers if name is None or name in server.models]
    if len(found) == 1:
        return endpoint_of(found[0], name)
    served = ", ".join(model for server in servers for model in server.models)
    what = "Several model servers are running" if found else f"No model server that is running serves `{name}`"
    raise NoServerError(f"{what}; they serve {served}.", fix="Name one of these with `model.name`.")


def _base_here(adapter: Adapter) -> Endpoint:
    """Return the endpoint of the running server that can load an adapter."""
    card = adapter.card
    of_base = [server for server in running() if server.base == card.base]
    for server in of_base:
        if server.rank is not None and server.rank >= card.rank:
            return endpoint_of(server)
    what = (
        f"The server of its base model loads no adapters of rank {card.rank}"
        if of_base
        else "No server of its base model is running"
    )
    fix = "Start one with `kernel-lsp model serve FOLDER --adapters`; one that runs is ended by `model stop`."
    raise NoServerError(f"The adapter `{card.name}` cannot be asked. {what}.", fix=fix)
