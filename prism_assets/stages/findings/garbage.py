"""Overdue deletions: marked garbage, and uploads of abandoned attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prism_assets.domain.findings import Finding
from prism_assets.domain.text import counted
from prism_assets.metadata.files import gc_log
from prism_assets.metadata.intake import abandoned_uploads
from prism_assets.stages.findings.subject import Look, Subject


def find_undeleted(look: Look) -> Iterator[Finding]:
    """Objects marked by a garbage collection of days ago."""
    for table, count in _of(look, gc_log.count_overdue(look.connection)):
        yield Finding(
            kind="undeleted_garbage",
            table=table,
            says=counted(count, "object was", "objects were")
            + " marked for deletion over two days ago and not deleted",
            remedy="Run `prism gc`, which says why; if it stays, the role lacks the right to delete",
            count=count,
            invariant="I10",
        )


def find_unremoved(look: Look) -> Iterator[Finding]:
    """Uploads of attempts that ended more than an hour ago."""
    for table, count in _of(look, abandoned_uploads.count_overdue(look.connection)):
        objects = counted(count, "object that was", "objects that were")
        yield Finding(
            kind="unremoved_uploads",
            table=table,
            says=f"uploads for {objects} given up still exist after an hour",
            remedy="Run `prism stream`; if it stays, the role lacks the right to delete",
            count=count,
            invariant="I2",
        )


def _of(look: Look, counts: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    return ((look.names[table_id], count) for table_id, count in counts.items() if table_id in look.names)


GARBAGE = Subject(find=find_undeleted)
UPLOADS = Subject(find=find_unremoved)
