"""A job's progress bar in the client, if the client supports progress."""

from lsprotocol import types

from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.job import Job

_TOKEN = "kernel-lsp/"


def job_of(token: object) -> str | None:
    """Return the id of the job whose bar has this token; None for other tokens."""
    return token.removeprefix(_TOKEN) if isinstance(token, str) and token.startswith(_TOKEN) else None


class ProgressBar:
    """The bar of one job."""

    def __init__(self, client: EditorConnection, job: Job) -> None:
        self._client, self._job = client, job
        self._shown = False
        self._said = ""

    async def begin(self) -> None:
        """Ask the client for a bar, and show it once it agrees."""
        window = self._client.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        params = types.WorkDoneProgressCreateParams(self._token)
        try:
            await self._client.window_work_done_progress_create_async(params)
        except Exception:  # the client refused
            return
        self._shown = True
        begun = types.WorkDoneProgressBegin(
            self._job.wanted.title, cancellable=True, message=self._job.text, percentage=self._job.percentage
        )
        self._send(begun)

    def report(self) -> None:
        """Show the job's current state."""
        if self._shown and self._job.text != self._said:
            self._said = self._job.text
            self._send(
                types.WorkDoneProgressReport(cancellable=True, message=self._said, percentage=self._job.percentage)
            )

    def end(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._shown = False
            self._send(types.WorkDoneProgressEnd(message=self._job.reason or self._job.state))

    @property
    def _token(self) -> str:
        return _TOKEN + self._job.id

    def _send(
        self, value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd
    ) -> None:
        self._client.progress(types.ProgressParams(self._token, value))
