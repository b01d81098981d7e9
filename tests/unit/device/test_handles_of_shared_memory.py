import pytest

pytest.importorskip("cuda.bindings")


def test_a_handle_has_the_bytes_that_another_process_sent() -> None:
    from kernel_lsp.device.driver import ipc_bytes, ipc_handle

    sent = bytes(range(64))

    assert ipc_bytes(ipc_handle(sent)) == sent
