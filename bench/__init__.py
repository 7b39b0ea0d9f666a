"""Benchmarks against peers, in the same run on the same machine; `scripts/bench NAME` runs them."""
