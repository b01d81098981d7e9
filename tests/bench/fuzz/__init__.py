"""Random PTX instructions, each with operands and what the emulator makes of them; `tests/bench/ptx_fuzz.py` runs them.

A generator is a function `(rng, count) -> Iterator[Instance]`; `generators.py` lists them all.
"""
