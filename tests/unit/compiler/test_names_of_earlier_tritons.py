"""What Triton says of a name that only its earlier versions had, and what to write today."""

import pytest

pytest.importorskip("triton")

from triton import language
from triton.language.extra import libdevice

from kernel_lsp.compiler.triton.renamed import advice_on


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("module 'triton.language' has no attribute 'libdevice'", "libdevice.FUNCTION(...)"),
        ("module 'triton.language.math' has no attribute 'tanh'", "libdevice.tanh(...)"),
        ("module 'triton.language' has no attribute '_experimental_descriptor_load'", "descriptor.load([...])"),
        ("AttributeError: module 'triton.language' has no attribute 'lod'", ""),
        ("module 'helpers' has no attribute 'pow'", ""),
        ("load() got an unexpected keyword argument 'trans_b'", ""),
    ],
)
def test_an_old_name_has_a_new_one_and_a_wrong_one_has_none(message: str, advice: str):
    assert advice in advice_on(message)
    assert bool(advice_on(message)) == bool(advice)


def test_the_installed_triton_has_what_is_advised_and_lacks_what_was():
    assert hasattr(language, "make_tensor_descriptor")
    assert hasattr(language, "trans")
    assert hasattr(libdevice, "pow")
    assert not hasattr(language.math, "pow")
    assert not hasattr(language, "libdevice")
