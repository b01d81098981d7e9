"""The start of a session as the client's `initialize` tells it, read without the protocol's types."""

import json
from pathlib import Path
from typing import Any

from kernel_lsp.lsp.said_settings import said_settings
from kernel_lsp.lsp.trust import Trust
from kernel_lsp.lsp.uris import path_of


def trusted_start(initialize: bytes) -> tuple[Path | None, dict[str, Any]] | None:
    """Return the first folder and the settings, with dotted names, of a client whose texts are going to be compiled.

    None where neither the client says that it trusts its folders nor the user has trusted the first one.
    """
    try:
        params = json.loads(initialize)["params"]
        roots = [one["uri"] for one in params.get("workspaceFolders") or ()] or [params.get("rootUri") or ""]
        folder, settings = path_of(roots[0]), said_settings(params.get("initializationOptions"))
    except (ValueError, LookupError, TypeError, AttributeError):  # the handler of `initialize` refuses it
        return None
    vouched = settings.pop("trusted", None)
    trusted = vouched is True if vouched is not None else folder is not None and Trust().covers(folder)
    return (folder, settings) if trusted else None
