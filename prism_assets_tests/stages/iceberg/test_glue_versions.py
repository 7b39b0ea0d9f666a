"""Two commits from one version of a table in Glue: Glue accepts only one of them, and so does its double."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from moto.glue.responses import GlueResponse
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table

from prism_assets_tests.faults.glue import GlueServer
from prism_assets_tests.stages.iceberg.clients import with_iceberg
from prism_assets_tests.stages.iceberg.days import attempt, is_sound, published, reasons, streamed
from prism_assets_tests.stages.iceberg.test_catalogs import with_catalog
from prism_assets_tests.stages.iceberg.test_concurrency import PATIENCE, together, without_leases
from prism_assets_tests.world import World
from prism_local.moto_server import VersionedGlue


@dataclass
class MeetingCatalog:
    """Waits before its first update until another catalog has read the same version. Notes each answer."""

    inner: Catalog
    both: threading.Barrier
    answers: list[str]

    def __post_init__(self) -> None:
        assert isinstance(self.inner, GlueCatalog)
        self.inner.glue.meta.events.register_first("before-call.glue.UpdateTable", self._meet)

    def _meet(self, **_: Any) -> None:
        both, self.both = self.both, threading.Barrier(1)
        both.wait(PATIENCE)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        try:
            response = self.inner.commit_table(table, requirements, updates)
        except CommitFailedException:
            self.answers.append("refused")
            raise
        self.answers.append("taken")
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("glue", "answers"),
    [(VersionedGlue, ["refused", "taken"]), (GlueResponse, ["taken", "taken"])],
    ids=["the double", "plain moto"],
)
def test_two_commits_from_one_version_are_taken_by_plain_moto_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, glue: type[GlueResponse], answers: list[str]
) -> None:
    with closing(GlueServer(glue)) as server:
        platform = with_catalog(world, iceberg_catalog="glue", glue_endpoint=server.endpoint)
        ids = published(platform)
        ids += streamed(platform)
        without_leases(monkeypatch)
        both, found = threading.Barrier(2), list[str]()
        works = [_publisher(platform, both, found, worker) for worker in ("first", "second")]

        reports = together(*works)

        assert sorted(found) == answers
        assert [reasons(report) for report in reports] == [[], []]
        assert is_sound(platform, ids)
        assert not attempt(platform).changed
        server.clear()


def _publisher(world: World, both: threading.Barrier, answers: list[str], worker: str) -> Callable[[], Any]:
    mine = with_iceberg(world, lambda inner: MeetingCatalog(inner, both, answers), worker=worker)
    assert mine.context.iceberg.catalog is not None
    return lambda: attempt(mine)
