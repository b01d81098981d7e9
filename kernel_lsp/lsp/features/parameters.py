"""The parameters of this server's own requests, which pygls passes on as plain JSON."""

from collections.abc import Mapping
from typing import Any, cast

from pygls.exceptions import JsonRpcInvalidParams


class Parameters:
    """Reads them.

    Raises:
        JsonRpcInvalidParams: they are no object, or what is asked for is not there or no text.
    """

    def __init__(self, params: Any) -> None:
        if not isinstance(params, Mapping):
            raise JsonRpcInvalidParams("The parameters must be an object.")
        self._given = cast("Mapping[str, Any]", params)

    def text(self, name: str) -> str:
        """A text that must be there."""
        if (found := self.optional(name)) is None:
            raise JsonRpcInvalidParams(f"This needs `{name}`.")
        return found

    def optional(self, name: str) -> str | None:
        """A text that may be left out or null."""
        found = self._given.get(name)
        if found is not None and not isinstance(found, str):
            raise JsonRpcInvalidParams(f"`{name}` must be text.")
        return found

    def uri(self) -> str:
        """The `uri` of `textDocument`, which must be there."""
        if (found := self.optional_uri()) is None:
            raise JsonRpcInvalidParams("This needs `textDocument.uri`.")
        return found

    def optional_uri(self) -> str | None:
        """The `uri` of `textDocument`, which may be left out."""
        document = self._given.get("textDocument")
        return None if document is None else Parameters(document).text("uri")
