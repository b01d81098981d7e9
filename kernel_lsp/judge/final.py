"""When the final checks of a confirmed gain were made, beside the time at which it was shown."""

from enum import StrEnum


class FinalChecks(StrEnum):
    """The state of the final checks: the sanitizer, the emulator and the steady load. The value is for people."""

    AWAITED = "made before the gain was shown"
    UNDER_WAY = "under way: the gain is confirmed, and may still be taken back"
    AFTERWARDS = "made while the gain was already shown as confirmed"
