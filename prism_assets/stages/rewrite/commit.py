"""The commit of a rewrite: all of its objects take their places, or none does.

Four rules decide, in this order and for every kind of rewrite:

1. The rewrite is running. A worker with a taken-over lease drops the rewrite, and so ends the right to commit.
2. Every place still holds the object read there, and every input is still in its place.
3. No erasure began after the rewrite did, and no column took a step to another name or type.
4. The objects hold the rows of their certificate.

The second and the third rule refuse stale rewrites: the caller plans again, with another number. Objects of a stale
rewrite are garbage, like objects of a dead worker.

All objects take their places from the staged files of the rewrite. Rebuilds and widenings stage theirs before the
commit, over hours. PostgreSQL replaces 10,000 staged ranges in half a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from prism_assets.domain.errors import InvariantBroken, StaleRewrite
from prism_assets.domain.files.data_file import DataFile, MergedRange
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.files.rewrites import (
    Certificate,
    Input,
    Place,
    Replacement,
    Rewrite,
    SmallObjectPlace,
    TableRewrite,
)
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_ranges
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import replacements, rewrites, staged_files
from prism_assets.metadata.rewrites.replacements import StandingObject

_Standing = Mapping[Place, StandingObject]


def commit_rewrite(
    connection: Connection, rewrite: Rewrite, chosen: Sequence[Replacement], certificate: Certificate
) -> None:
    """Puts all objects of a rewrite in place, ends the rewrite, and marks the day for republication.

    The caller holds the lease and the row of the day. Raises LeaseLost by the first rule, and StaleRewrite by the
    second and third: before any change. Raises InvariantBroken by the fourth. A death leaves everything unchanged.
    """
    _commit(connection, rewrite, {rewrite.partition_id: chosen}, certificate, is_staged=False)


def commit_staged(
    connection: Connection,
    rewrite: TableRewrite,
    staged: Mapping[int, Sequence[Replacement]],
    certificate: Certificate,
) -> None:
    """Commits a rewrite of some days like `commit_rewrite`, with the objects that it has staged, by partition.

    The caller holds the rows of all these days.
    """
    _commit(connection, rewrite, staged, certificate, is_staged=True)


def stage_range(
    connection: Connection, rewrite: TableRewrite, partition_id: int, item: Replacement, certificate: Certificate
) -> None:
    """Stages a new object for a range.

    If the range was rewritten meanwhile, stages nothing, and the next run makes another.

    The caller holds the row of the day. Raises InvariantBroken by the fourth rule. Nobody reads a staged object. After
    a death garbage collection deletes it.
    """
    standing = _load_standing(connection, {partition_id: [item]})[partition_id]
    if all(_still_stands(read, standing) for read in item.inputs):
        staged_files.add_range(connection, rewrite, partition_id, _certified(item, standing, certificate))


def _commit(
    connection: Connection,
    rewrite: TableRewrite,
    chosen: Mapping[int, Sequence[Replacement]],
    certificate: Certificate,
    *,
    is_staged: bool,
) -> None:
    """Checks all days by the four rules, then changes them."""
    rewrites.lock_running(connection, rewrite.rewrite_id)
    standing = _load_standing(connection, chosen)
    for number, items in chosen.items():
        _check_places(connection, number, items, standing[number])
    rewrites.check_plan(connection, rewrite)
    certified = {
        number: [_certified(item, standing[number], certificate) for item in items] for number, items in chosen.items()
    }
    if not is_staged:
        for number, items in certified.items():
            staged_files.add(connection, rewrite, number, [(item.file, item.replaced_id) for item in items])
    _put_in_place(connection, rewrite, certified, standing)
    for number in chosen if certificate is Certificate.NEW_ROWS else ():
        if wrong := merge_ranges.find_unequal(connection, number):
            raise InvariantBroken(f"{wrong}: nothing was changed")
    written = [item.file for items in certified.values() for item in items]
    rewrites.finish(connection, rewrite.rewrite_id, FoldCounts.of(written))
    failpoint("rewrite.in_commit")


def _load_standing(connection: Connection, chosen: Mapping[int, Sequence[Replacement]]) -> Mapping[int, _Standing]:
    """Returns the current objects of all places of some days."""
    places = {
        number: {read.place for item in items for read in item.inputs} | {item.place for item in items}
        for number, items in chosen.items()
    }
    return replacements.load_standing(connection, places)


def _check_places(
    connection: Connection, partition_id: int, chosen: Sequence[Replacement], standing: _Standing
) -> None:
    """Raises StaleRewrite if an input was replaced."""
    if not all(_still_stands(read, standing) for item in chosen for read in item.inputs):
        raise StaleRewrite("objects that were read were rewritten meanwhile; nothing was changed: repeat it")
    _check_chain(connection, partition_id, chosen, standing)


def _check_chain(connection: Connection, partition_id: int, chosen: Sequence[Replacement], standing: _Standing) -> None:
    """Raises StaleRewrite unless grown ranges begin at the end of the chain and cover exactly their inputs."""
    end = -1
    for item in chosen:
        if (grown := _grown_range(item, standing)) is None:
            continue
        there = standing.get(item.place)
        before = there.upper_bound if there else None
        end = replacements.chain_end(connection, partition_id) if end < 0 else end
        if end != (before if item.replaces else grown.lower_bound):
            raise StaleRewrite(
                f"the ranges end at {end} by now, as others have merged meanwhile; nothing was changed: repeat it"
            )
        read = sum(isinstance(one.place, SmallObjectPlace) for one in item.inputs)
        if read != replacements.count_small_objects(connection, partition_id, end, grown.upper_bound):
            raise StaleRewrite(
                "others have committed small objects between those that were read; nothing was changed: repeat it"
            )
        end = grown.upper_bound


def _grown_range(item: Replacement, standing: _Standing) -> MergedRange | None:
    """Returns the object of a replacement if it begins a range or extends one."""
    if not isinstance(item.file, MergedRange):
        return None
    there = standing.get(item.place)
    keeps_bounds = item.replaces is not None and there is not None and there.upper_bound == item.file.upper_bound
    return None if keeps_bounds else item.file


def _still_stands(read: Input, standing: _Standing) -> bool:
    there = standing.get(read.place)
    return there is not None and there.rewrite_id == read.rewrite_id


def _certified(item: Replacement, standing: _Standing, certificate: Certificate) -> Replacement:
    """Checks a replacement by the fourth rule. An object with the same rows respects the erasures of all inputs."""
    if certificate is Certificate.NEW_ROWS:
        return item
    inputs = [standing[read.place] for read in item.inputs]
    if certificate is Certificate.SAME_ROWS:
        found, expected = _rows([item.file]), _rows(inputs)
        item = replace(item, file=replace(item.file, erasure_id=min(known.erasure_id for known in inputs)))
    else:
        found, expected = _all_rows([item.file]), _all_rows(inputs)
    if found != expected:
        raise InvariantBroken(
            f"{item.file.key} holds {counted(item.file.row_count, 'row')}, and not the {certificate.value} of the "
            f"{counted(len(inputs), 'object')} that it was made of: nothing was changed"
        )
    return item


def _rows(files: Sequence[DataFile | StandingObject]) -> tuple[int, int]:
    return sum(file.row_count for file in files), combine(file.fingerprint for file in files)


def _all_rows(files: Sequence[DataFile | StandingObject]) -> tuple[int, int]:
    """Counts and fingerprints of objects, erased rows included."""
    rows = sum(file.row_count + file.rows_erased for file in files)
    return rows, combine(file.fingerprint + file.erased_fingerprint for file in files)


def _put_in_place(
    connection: Connection,
    rewrite: TableRewrite,
    chosen: Mapping[int, Sequence[Replacement]],
    standing: Mapping[int, _Standing],
) -> None:
    """Replaces the objects. Grown ranges raise the desired version of their day, other objects the revision."""
    grown = {
        number: [file.upper_bound for item in items if (file := _grown_range(item, standing[number])) is not None]
        for number, items in chosen.items()
    }
    for number in filter(grown.__getitem__, chosen):
        replacements.begin_chain(connection, number)
    done, wanted = replacements.replace(connection, rewrite.rewrite_id), sum(map(len, chosen.values()))
    if done != wanted:
        raise InvariantBroken(f"{counted(done, 'object')} of {wanted} took their places: nothing was changed")
    staged_files.forget(connection, rewrite.rewrite_id)
    for number in filter(grown.__getitem__, chosen):
        partitions.raise_desired(connection, number, max(grown[number]))
    partitions.raise_revisions(connection, [number for number in chosen if len(grown[number]) < len(chosen[number])])
