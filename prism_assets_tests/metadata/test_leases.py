"""Leases: one holder at a time, lost by silence alone, and nothing done by whoever lost one."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from prism_assets.domain.errors import LeaseLost
from prism_assets.metadata import leases
from prism_assets.metadata.database import Database
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets_tests.metadata.rows import Rows
from prism_assets_tests.metadata.sessions import Sessions

SECONDS = 60.0


def take(connection: Connection, *ids: int, worker: str = "me", kind: LeaseKind = LeaseKind.CATALOG) -> list[Lease]:
    return leases.take(connection, kind, ids, worker, SECONDS)


def taken(database: Database, *ids: int, worker: str = "me") -> list[Lease]:
    with database.begin() as connection:
        return take(connection, *ids, worker=worker)


def holder(database: Database, subject_id: int) -> str | None:
    with database.begin() as connection:
        found = leases.holders(connection, LeaseKind.CATALOG, [subject_id]).get(subject_id)
    return found.worker if found else None


def fall_silent(rows: Rows) -> None:
    """As if all holders had stood still for longer than a lease."""
    rows.sql("UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '61 seconds'")


def test_a_lease_has_one_holder_until_it_is_given_back(database: Database) -> None:
    (mine,) = taken(database, 1)
    assert [lease.subject_id for lease in taken(database, 1, 2, worker="you")] == [2]
    assert holder(database, 1) == "me"
    with database.begin() as connection:
        assert take(connection, 1, kind=LeaseKind.REPAIR), "a repair is another matter"
        leases.release(connection, [mine])
    assert [lease.subject_id for lease in taken(database, 1, worker="you")] == [1]


def test_a_silent_holder_loses_its_lease_and_finds_out_before_it_changes_anything(
    database: Database, rows: Rows
) -> None:
    (mine,) = taken(database, 1)
    fall_silent(rows)
    (yours,) = taken(database, 1, worker="you")
    with pytest.raises(LeaseLost, match="has taken this work over"), database.begin() as connection:
        leases.hold(connection, mine)
    with database.begin() as connection:
        leases.release(connection, [mine])
        leases.hold(connection, yours)
    assert holder(database, 1) == "you"


def test_a_holder_that_shows_that_it_lives_keeps_its_lease(database: Database, rows: Rows) -> None:
    (mine,) = taken(database, 1)
    fall_silent(rows)
    with database.begin() as connection:
        assert leases.renew(connection, [mine]) == 1
    assert taken(database, 1, worker="you") == []


def test_a_silent_holder_that_nobody_replaced_goes_on(database: Database, rows: Rows) -> None:
    (mine,) = taken(database, 1)
    fall_silent(rows)
    with database.begin() as connection:
        leases.hold(connection, mine)
    assert taken(database, 1, worker="you") == []


def test_nobody_takes_over_while_the_holder_commits_and_nobody_waits_for_it(
    database: Database, rows: Rows, sessions: Sessions
) -> None:
    (mine,) = taken(database, 1)
    fall_silent(rows)
    committing, taking = sessions.open(), sessions.open()
    committing.do(lambda connection: leases.hold(connection, mine))
    assert taking.do(lambda connection: take(connection, 1, worker="you")) == []
    committing.commit()
    assert holder(database, 1) == "me"


def test_two_that_take_over_at_once_do_not_both_get_it(database: Database, rows: Rows, sessions: Sessions) -> None:
    taken(database, 1)
    fall_silent(rows)
    first, second = sessions.open(), sessions.open()
    assert len(first.do(lambda connection: take(connection, 1, worker="one"))) == 1
    assert second.do(lambda connection: take(connection, 1, worker="two")) == []
    first.commit()
    second.commit()
    assert holder(database, 1) == "one"
