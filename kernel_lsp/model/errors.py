"""Errors of model servers and their answers, one class for each failure, with its fix."""

from kernel_lsp.errors import KernelLspError


class ModelError(KernelLspError):
    """A model, its server or its answer cannot be used."""


class NoServerError(ModelError):
    """No model server is running, or several are and none was chosen."""


class RefusedConnectionError(ModelError):
    """Nothing listens where the server should be."""


class ServerCrashedError(ModelError):
    """The server went away in the middle of an answer."""


class ServerSaidError(ModelError):
    """The server answered a request with an error of its own."""


class WrongKeyError(ModelError):
    """The server does not accept the key."""


class NotServedError(ModelError):
    """The server does not serve a model or an adapter of this name."""


class PromptTooLongError(ModelError):
    """Prompt and answer together do not fit the model's context."""


class AsleepError(ModelError):
    """The server sleeps, for its memory was needed; requests to it would hang until it wakes."""


class AnswerTimedOutError(ModelError):
    """The server said nothing for too long, or the whole answer took too long."""


class CutOffError(ModelError):
    """The answer reached the limit on its tokens before it ended."""


class EndlessReasoningError(ModelError):
    """The model was still reasoning when it had spent the tokens it may reason for."""


class ConsentError(ModelError):
    """Source code would leave this machine, and nobody has agreed to that for this host."""


class NoWeightsError(ModelError):
    """The weights of a model are not on this machine."""


class DoesNotFitError(ModelError):
    """No way of serving the model fits the memory of the GPUs found."""


class WrongArchitectureError(ModelError):
    """The folder's model cannot be served under this profile."""


class NoVllmError(ModelError):
    """vLLM is not installed where it was looked for."""


class UnsuitedProfileError(ModelError):
    """Models of this profile cannot work on this kernel."""


class StartFailedError(ModelError):
    """The server ended or hung before it was ready."""
