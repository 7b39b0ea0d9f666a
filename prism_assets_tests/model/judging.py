"""The reader's view of a state, and the invariants of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prism_assets_tests.model.states import Content, Rows, State
from prism_assets_tests.model.steps import LATE_LANDING, rows_of_range


def visible(state: State) -> Rows:
    """Returns the rows visible in the catalog, in order, including doubles. Missing objects show none."""
    return tuple(sorted(row for rows in _read(state, state.shown) if rows is not None for row in rows))


def _read(state: State, shown: Content | None) -> Iterator[Rows | None]:
    """Returns the rows of each object the catalog leads to, or None for a missing one."""
    if shown is None:
        return
    if shown.publication.is_live_prefix:
        yield tuple(state.live)
        return
    for entry in shown.entries:
        if entry.merged:
            yield rows_of_range(state, entry.first, entry.second)
        else:
            yield (entry.first,) if entry.first in (state.delayed if entry.second else state.live) else None


def faults(state: State) -> Iterator[str]:
    """Returns the faults of a state, independent of earlier states."""
    twice = [row for row, count in Counter(visible(state)).items() if count > 1]
    if twice:
        yield f"I2: a reader sees row {twice[0]} twice"
    if any(rows is None for rows in _read(state, state.shown)):
        yield "I4: the catalog names an object that is not there"
    if sum(merger is not None and merger.leased for merger in state.mergers) > 1:
        yield "H1: two workers merge one partition"
    partition = state.partition
    if partition is not None and partition.last_live_object_id is not None:
        above = [item for item in state.small if not item.delayed and item.object_id > partition.last_live_object_id]
        if above:
            yield f"H2: live object {above[0].object_id} came behind the close"


def faults_of_step(before: State, name: str, after: State) -> Iterator[str]:
    """Returns the faults of a step."""
    if before.shown is not after.shown or before.live is not after.live or before.merged is not after.merged:
        gone = set(visible(before)) - set(visible(after))
        if gone and name != LATE_LANDING:
            yield f"I3: a reader no longer sees row {min(gone)}"
    if before.merged is not after.merged:
        known = {item[:2]: item[2] for item in before.merged}
        if any(known.get(item[:2], item[2]) != item[2] for item in after.merged):
            yield "I4: a merged object is given other rows under the same key"
    if before.manifests is not after.manifests:
        named = {item.publication: item.entries for item in before.manifests}
        if any(named.get(item.publication, item.entries) != item.entries for item in after.manifests):
            yield "I4: a manifest is given other entries under the same key"
