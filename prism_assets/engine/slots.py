"""Counts the tasks that a Spark cluster runs at the same time."""

from __future__ import annotations

import re
from typing import Any

_SPLITS = re.compile(r"\bsplits=(\d+)")


def count_slots(session: Any) -> int:
    """Returns the cores of the current executors, or `spark.default.parallelism` if it is set; at least 1.

    A client of Spark Connect has no SparkContext. There the plan of a range tells the number, because Spark divides
    a range into as many partitions. The call costs some milliseconds and runs no job.
    """
    from pyspark.sql import SparkSession  # of classic masters: that of Spark Connect is none of this class

    if isinstance(session, SparkSession):
        return max(1, session.sparkContext.defaultParallelism)
    found = _SPLITS.search(session.range(1 << 20)._explain_string(mode="simple"))
    return max(1, int(found[1])) if found else 1
