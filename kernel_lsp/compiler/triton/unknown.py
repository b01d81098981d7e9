"""Placeholders for names of modules that are not installed, in files that are loaded in part."""

from typing import Any, NoReturn

from kernel_lsp.errors import WorkloadError


class UnknownError(ModuleNotFoundError):
    """The value of a name is needed, and its module is not installed.

    Attributes:
        origin: the error that its import raised.
    """

    def __init__(self, origin: WorkloadError) -> None:
        super().__init__(origin.message)
        self.origin = origin

    @property
    def module(self) -> str:
        """Return the missing module's name, or "a module" if it is not known."""
        cause = self.origin.__cause__
        return (isinstance(cause, ImportError) and cause.name) or "a module"


class Unknown:
    """Stands for a name of a missing module, and for every value computed with it.

    It can be passed on, called, compared, and be a base of classes. Where its value is needed, in a test, a
    loop or a number, it raises `UnknownError`.

    Args:
        origin: the error that the import raised.
    """

    def __init__(self, origin: WorkloadError) -> None:
        self.origin = origin

    def __getattr__(self, name: str) -> "Unknown":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    __hash__ = object.__hash__

    def _same(self, *_others: Any, **_named: Any) -> Any:
        return self

    def _asked(self, *_others: Any) -> NoReturn:
        raise UnknownError(self.origin)

    __call__ = __getitem__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = _same
    __bool__ = __iter__ = __len__ = __contains__ = __int__ = __float__ = __index__ = __enter__ = _asked
