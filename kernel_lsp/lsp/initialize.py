"""Answer `initialize` with plain JSON.

The protocol's 550 types take longer to import than everything else at start, and an editor waits for this answer, which
needs none of them. So it is sent before they are imported; `protocol` handles the same message afterwards.
"""

import json
from typing import Any, cast

from kernel_lsp import __version__
from kernel_lsp.lsp.catalog import ACTION_KINDS, COMMANDS

NAME = "kernel-lsp"

_ENCODINGS = ("utf-8", "utf-16", "utf-32")
_FULL = 1  # text synchronization

Json = dict[str, Any]


def answer_initialize(body: bytes) -> tuple[str | int, Json] | None:
    """Return the request's id and the answer; None if the message is no valid `initialize`."""
    try:
        message = json.loads(body)
        if message["method"] != "initialize" or message["jsonrpc"] != "2.0":
            return None
        request, capabilities = message["id"], message["params"]["capabilities"]
        encoding, pulls = _encoding(capabilities), _pulls(capabilities)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    if isinstance(request, bool) or not isinstance(request, str | int):
        return None
    result = {"capabilities": _capabilities(encoding, pulls), "serverInfo": {"name": NAME, "version": __version__}}
    return request, {"jsonrpc": "2.0", "id": request, "result": result}


def _encoding(client: Json) -> str:
    """Return the encoding in which columns are counted: the client's first choice among the supported ones."""
    offered = cast("list[Any]", client.get("general", {}).get("positionEncodings") or [])
    return next((one for one in offered if one in _ENCODINGS), "utf-16")


def _pulls(client: Json) -> bool:
    """Return True if the client asks for diagnostics, and can be told to ask again."""
    again = client.get("workspace", {}).get("diagnostics") or {}
    return client.get("textDocument", {}).get("diagnostic") is not None and again.get("refreshSupport") is True


def _capabilities(encoding: str, pulls: bool) -> Json:
    found: Json = {
        "positionEncoding": encoding,
        "textDocumentSync": {"openClose": True, "change": _FULL, "save": True},
        "hoverProvider": True,
        "documentSymbolProvider": True,
        "codeActionProvider": {"codeActionKinds": list(ACTION_KINDS), "resolveProvider": True},
        "codeLensProvider": {"resolveProvider": False},
        "executeCommandProvider": {"commands": [command.full_name for command in COMMANDS]},
        "inlayHintProvider": {"resolveProvider": False},
        "workspace": {
            "workspaceFolders": {"supported": True, "changeNotifications": True},
            "fileOperations": {},
        },
    }
    if pulls:
        asked = {"interFileDependencies": True, "workspaceDiagnostics": False, "identifier": NAME}
        found["diagnosticProvider"] = asked
    return found
