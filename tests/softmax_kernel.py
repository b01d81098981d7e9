"""The example softmax in Triton with small cases: each version that is judged is compiled and run for every case."""

import re
from pathlib import Path

_EXAMPLE = Path(__file__).parents[1] / "examples/triton/softmax.py"


def write_softmax(folder: Path, *cols: int) -> Path:
    """Write the kernel with its workload, a case for each length of rows, into a folder and return its path."""
    cases = ", ".join(f"dict(rows=3, cols={length}, padding=6)" for length in cols or (50,))
    text, found = re.subn(r"^CASES = .*?^\]", f"CASES = [{cases}]", _EXAMPLE.read_text(), flags=re.M | re.S)
    assert found == 1
    path = folder / "softmax.py"
    path.write_text(text)
    return path
