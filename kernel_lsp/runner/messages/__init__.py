"""Requests that the parent sends to workers, and their answers, each a record.

A request's class names the type of its answer and the method of the role that makes it: `await worker.ask(Probe())` is
a bool to the type checker as it is at run time, and a role that lacks a method does not pass it. Both travel as
msgpack, in which bytes are bytes.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Never, TypeVar, cast, get_args

import msgspec

OTHER_ANSWER = "the answer to other inputs"
"""Name of the trivial answer that is right for other inputs of the same case."""

Role = TypeVar("Role", contravariant=True)
Answer = TypeVar("Answer", covariant=True)


class Request(msgspec.Struct, Generic[Role, Answer], frozen=True, kw_only=True):
    """A request of the parent to a worker of one role."""

    def answered_by(self, role: Role) -> Answer:
        """Return the answer of the role's method for this request."""
        raise NotImplementedError


AnyRequest = Request[Any, object]


def encode(message: object) -> bytes:
    """Return a request, an answer or any other record as bytes; lone surrogates in its texts are escaped."""
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_written)
        return _ENCODER.encode(_escaped(plain))


def decode_request(name: str, body: bytes) -> AnyRequest:
    """Return the request that a parent has encoded; `name` is the name of its class.

    Raises:
        LookupError: no request is called so.
        ValueError: the body is not one.
    """
    return _decoder(_requests()[name]).decode(body)


def decode_answer(request: Request[Never, Answer], body: bytes) -> Answer:
    """Return a worker's answer to a request.

    Raises:
        ValueError: the body is no such answer.
    """
    return _decoder(_answer_type(type(request))).decode(body)


@lru_cache
def _answer_type(request: type[AnyRequest]) -> object:
    (base,) = vars(request)["__orig_bases__"]
    return get_args(base)[1]


def _requests() -> dict[str, type[AnyRequest]]:
    kinds = cast(list[type[AnyRequest]], Request.__subclasses__())
    return {kind.__name__: kind for kind in kinds}


@lru_cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_read)


def _escaped(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        pairs = cast(dict[object, object], value).items()
        return {_escaped(key): _escaped(content) for key, content in pairs}
    if isinstance(value, (list, tuple)):
        return [_escaped(content) for content in cast(Sequence[object], value)]
    return value


def _written(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot travel to or from a worker")


def _read(kind: type[object], value: object) -> Path:
    if kind is Path:
        return Path(str(value))
    raise TypeError(f"{kind.__name__} cannot travel to or from a worker")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_written)
