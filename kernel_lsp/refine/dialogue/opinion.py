"""A second opinion (CudaForge, arXiv 2511.01884): one bottleneck, one method, one plan, before the next turn."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"^\W*(bottleneck|method|plan)\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_LONGEST = 600  # characters of a line


@dataclass(frozen=True, slots=True)
class Opinion:
    """The advice of a second reader of the profile."""

    bottleneck: str
    method: str
    plan: str

    @property
    def parts(self) -> dict[str, str]:
        """Return the parts by name, for the template."""
        return {"bottleneck": self.bottleneck, "method": self.method, "plan": self.plan}


def read_opinion(text: str) -> Opinion | None:
    """Return the opinion in an answer of three lines; None where a line is missing or repeated."""
    found = [(name.lower(), said.strip()[:_LONGEST]) for name, said in _LINE.findall(text)]
    return Opinion(**dict(found)) if sorted(name for name, _ in found) == ["bottleneck", "method", "plan"] else None
