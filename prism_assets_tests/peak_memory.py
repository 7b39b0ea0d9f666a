"""The most memory of a process since its program began.

`ru_maxrss` of a child counts the memory of its parent, too, as it stands between fork and exec.
"""

from __future__ import annotations

import re
import resource
from pathlib import Path


def peak_kilobytes() -> int:
    """Returns the most resident memory of this process; with that of its parent where /proc is missing."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found, "Linux names the most resident memory"
    return int(found[1])
