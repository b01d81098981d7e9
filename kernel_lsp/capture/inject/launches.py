"""Records launches of Triton kernels by themselves, where no function of the kernel's own file makes them.

The arguments of such a launch are recorded as a function's are, with its grid and its options among them.
"""

import _kernel_lsp_calls as calls

GRID = "grid"
_NO_ARGUMENTS = ("device", "device_type", "stream", "warmup", GRID)


def begin(jit, kernel, why, args, kwargs):
    """Return the call that a launch is, to be finished when it has been made; None if it cannot be made again.

    Args:
        jit: the Triton function.
        kernel: its record, which keeps the reason why there is none.
        why: the reason why it is recorded by itself.
        args: positional arguments of the launch.
        kwargs: named ones, with its grid and options.
    """
    names = getattr(jit, "arg_names", None)
    if names is None or GRID in names or len(args) > len(names):
        kernel["why"] = why
        return None
    values = {name: _plain(value) for name, value in zip(names, args, strict=False)}
    values |= {name: _plain(value) for name, value in kwargs.items() if name not in _NO_ARGUMENTS}
    for name, value in values.items():
        if not calls.described().can_be_given(value):
            kernel["why"] = f"{why}; its own argument `{name}` is a {type(value).__name__}"
            return None
    grid = kwargs.get(GRID)
    grid = grid(dict(values)) if callable(grid) else grid
    values[GRID] = tuple(int(size) for size in (grid if isinstance(grid, (tuple, list)) else (grid,)))
    call = calls.BegunCall(jit.fn.__code__, values, False)
    call.kernels.append(kernel["name"])
    calls.begin(call)
    call.record.function.is_kernel = True
    return call


def _plain(value):
    """Return the value of a compile-time constant; any other as it is."""
    return value.value if type(value).__name__ == "constexpr" else value
