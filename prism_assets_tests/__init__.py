"""Tests of prism_assets. They mirror its packages; `flow` runs whole lives of partitions end to end."""
