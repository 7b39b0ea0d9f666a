"""Python's garbage collector in processes that handle many values: it runs seldom, and leaves out imported modules."""

from __future__ import annotations

import gc
from functools import cache

_NEW_OBJECTS = 50_000


@cache
def collect_seldom() -> None:
    """Runs the garbage collector every `_NEW_OBJECTS` new objects instead of every 700.

    A block of lines read one by one creates more objects, and none is garbage before the end of the block. Repeated
    collections took a fifth of the time for lines with a column `json`.
    """
    gc.set_threshold(_NEW_OBJECTS)


@cache
def settle() -> None:
    """Hides imported modules from the garbage collector, once a process.

    Spark's worker collects everything after each task. With all these modules a collection takes 0.05 s, and the next
    task waits for it. In a live worker the messages of Kafka, objects of the client, started such collections; they
    took almost half of the time of reading a topic.
    """
    gc.collect()
    gc.freeze()
