"""When the final checks of a confirmed gain were made, beside the time at which it was shown."""

from enum import StrEnum


class FinalChecks(StrEnum):
    """When a gain was shown, beside its final checks (sanitizer, emulator, steady load), as the end of a sentence."""

    AWAITED = "after its final checks"
    UNDER_WAY = "as confirmed, before its final checks, which may still take it back"
    AFTERWARDS = "as confirmed, before its final checks, which were made meanwhile"
