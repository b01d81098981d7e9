"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Let programs that tests start hear an interrupt: a shell that runs tests in the background has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
