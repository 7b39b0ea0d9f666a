"""What a process does with freed memory, by the pages that the system maps for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PAGES = """
import resource, sys
import numpy as np
import pyarrow as pa
from prism_assets.engine.allocator import keep_memory

if sys.argv[1] == "kept":
    keep_memory()
else:
    pa.set_memory_pool(pa.system_memory_pool())

def fill():
    np.frombuffer(pa.allocate_buffer(64 << 20), np.uint8)[::4096] = 1

for _ in range(10):  # glibc's caches of a thread hold back splinters of the first blocks
    fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_of(way: str) -> int:
    """Fills and frees 64 MiB twenty times more in a new process. Returns the pages that were mapped for that."""
    done = subprocess.run([sys.executable, "-c", _PAGES, way], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these options")
def test_freed_memory_is_used_again_without_the_system() -> None:
    kept, given_back = pages_of("kept"), pages_of("given back")
    assert kept * 4 < given_back
