"""Spark's daemon of Python workers, with the modules of tasks imported before the first fork.

`python -m prism_assets.engine.daemon pyspark.worker` takes the arguments of `pyspark.daemon`. Spark ends a worker that
had no task for a minute, and forks a new one for the next task. Under `pyspark.daemon`, each new worker imports numpy,
pyarrow, obstore and the kernels again.

Only the executors of classic masters run this daemon: they belong to one program, and so to its code. A Connect server
outlives its programs, and its daemon would keep the code of the first one.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import prism_assets.engine.worker
import prism_assets.kernels.registry  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would copy the memory of all these modules
    manager()  # type: ignore[no-untyped-call]
