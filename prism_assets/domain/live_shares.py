"""Shares tables out among live workers. Each worker computes the same shares from the same leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from fractions import Fraction
from math import ceil


def share_out(wanted: Mapping[int, Collection[int]], held: Mapping[int, int]) -> dict[int, int]:
    """Returns the worker of each table. `wanted` has the tables of each living worker, `held` the holders of tables.

    Each table gets one of its wanting workers, so no table is left out. Tables with few wanting workers come first. A
    table stays with the holder up to the holder's share. Otherwise the wanting worker with the fewest tables gets it.

    A worker's share is the number of its tables, and a table of N workers counts 1/N. With equal wishes this is an
    even share. A table depends only on the tables before it, so workers that follow this plan agree after some beats.
    """
    workers: dict[int, list[int]] = {}
    for worker in sorted(wanted):
        for table in wanted[worker]:
            workers.setdefault(table, []).append(worker)
    share = {worker: ceil(sum(Fraction(1, len(workers[table])) for table in set(wanted[worker]))) for worker in wanted}
    owners: dict[int, int] = {}
    load: Counter[int] = Counter()
    for table in sorted(workers, key=lambda number: (len(workers[number]), number)):
        holder = held.get(table)
        if holder not in workers[table] or load[holder] >= share[holder]:
            holder = min(workers[table], key=lambda worker: (load[worker] >= share[worker], load[worker], worker))
        owners[table] = holder
        load[holder] += 1
    return owners
