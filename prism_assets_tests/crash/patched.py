"""Copies of the package without one mechanism each. A suite that passes on such a copy could not fail."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prism_assets_tests.crash.fleet import ROOT


@dataclass(frozen=True)
class Edit:
    """A text that occurs exactly once in a file, and its replacement."""

    file: str
    text: str
    instead: str


@dataclass(frozen=True)
class Removal:
    """One mechanism, the race that detects its absence (none for the sweep), and the expected sentence."""

    name: str
    race: str
    says: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return self.name


_HOLD = Edit("metadata/leases.py", "if not renew(connection, [lease]):", "if False:")
REMOVALS: Sequence[Removal] = (
    Removal(
        "the kill",
        "",
        "not where it should",
        (Edit("failpoints.py", "os.kill(os.getpid(), signal.SIGKILL)", "return"),),
    ),
    Removal(
        "the epoch lock",
        "epoch",
        "knew nothing of the mark",
        (
            Edit(
                "metadata/locks.py",
                'connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": EPOCH})',
                "return",
            ),
        ),
    ),
    Removal(
        "the row locks of a claim",
        "claim",
        "batches claimed one object",
        (
            Edit(
                "metadata/intake/claims.py",
                "ORDER BY o.prism_staging_object_id LIMIT s.share FOR UPDATE SKIP LOCKED",
                "ORDER BY o.prism_staging_object_id LIMIT s.share",
            ),
        ),
    ),
    Removal(
        "the row locks of a claim of merges",
        "claim_of_merges",
        "",
        (Edit("metadata/files/merge_jobs.py", " LIMIT :limit FOR UPDATE OF j SKIP LOCKED", " LIMIT :limit"),),
    ),
    Removal(
        "the fences of batches",
        "dead_batch",
        "",
        (
            Edit("metadata/intake/batches.py", 'if state != "running":', "if False:"),
            Edit(
                "metadata/intake/batches.py",
                "if not _change(connection, _FINISH, batch):",
                "if None is _change(connection, _FINISH, batch):",
            ),
            Edit("metadata/intake/staging_objects.py", "if changed != len(results):", "if False:"),
        ),
    ),
    Removal(
        # A taken-over job also drops its rewrite, which would hide the missing token.
        "the lease token of merges, and the end of a rewrite",
        "dead_merge",
        "committed it",
        (
            Edit(
                "metadata/files/merge_jobs.py",
                "    rewrites.drop_of_lease(connection, str(job.lease_token))\n    values = {",
                "    values = {",
            ),
            Edit(
                "metadata/files/merge_jobs.py",
                "AND ongoing_mark = :id AND lease_token = :token\nFOR UPDATE",
                "AND ongoing_mark = :id AND :token = :token\nFOR UPDATE",
            ),
        ),
    ),
    Removal(
        # A merge is planned again if small objects came between its inputs, which would hide the missing lock.
        "the lock of partitions before ids are taken, and the count of a merge's small objects",
        "ids_in_order",
        "passed over an object",
        (
            Edit("metadata/days/partitions.py", "ORDER BY p.prism_partition_id FOR UPDATE", "ORDER BY 1"),
            Edit(
                "stages/rewrite/commit.py",
                "if read != replacements.count_small_objects(",
                "if None is replacements.count_small_objects(",
            ),
        ),
    ),
    Removal(
        "the verification of manifests",
        "damaged_object",
        "not verified",
        (Edit("publishers/glue.py", "if length != file.content_length:", "if False:"),),
    ),
    Removal(
        "the reading back of the catalog",
        "ignored_update",
        "is recorded",
        (Edit("publishers/glue_catalog.py", "if shown.get(day) != _shape(table, locations[day])", "if False"),),
    ),
    Removal(
        "the record upwards only, and by the holder of the lease",
        "late_record",
        "went back",
        (
            _HOLD,
            Edit(
                "metadata/days/publications.py",
                "WHERE q.version <= excluded.version AND q.published_object_id <= excluded.published_object_id\n"
                "    AND q.revision <= excluded.revision",
                "",
            ),
        ),
    ),
    Removal("the look at the lease of the catalog before a call", "late_call", "I3", (_HOLD,)),
    Removal(
        "the lease of the catalog",
        "two_publishers",
        "I3",
        (
            _HOLD,
            Edit(
                "metadata/leases.py",
                "AND heartbeat_time < clock_timestamp() - make_interval(secs => :lease)\n    ORDER BY subject_id",
                "AND :lease = :lease\n    ORDER BY subject_id",
            ),
        ),
    ),
)


def copy_without(removal: Removal, folder: Path) -> Path:
    """A folder to put before all others on PYTHONPATH: the package without the mechanism, and these tests."""
    folder.mkdir()
    shutil.copytree(ROOT / "prism_assets", folder / "prism_assets")
    for edit in removal.edits:
        (folder / "prism_assets" / edit.file).write_text(edited(edit, folder))
    (folder / "prism_assets_tests").symlink_to(ROOT / "prism_assets_tests")
    return folder


def edited(edit: Edit, root: Path = ROOT) -> str:
    """Returns the file below `root` after an edit. Fails unless the text occurs exactly once."""
    source = (root / "prism_assets" / edit.file).read_text()
    assert source.count(edit.text) == 1, f"{edit.file} has {source.count(edit.text)} times: {edit.text}"
    return source.replace(edit.text, edit.instead)
