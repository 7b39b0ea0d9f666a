"""Tests of prism_assets. They mirror its packages; `flow` runs whole lives of partitions end to end."""

import gc

# Libraries keep hundreds of thousands of objects to the end, and each collection of cycles looks through many of them.
gc.set_threshold(20_000, 20, 20)
