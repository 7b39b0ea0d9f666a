"""Migrations of a database that is in use: they keep nobody waiting, wait for each other, and survive a death."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import alembic.command
import alembic.config
import alembic.script
import pytest
from sqlalchemy import text

from prism_assets.domain.lifecycle import publication_due
from prism_assets.domain.partitions import Publication
from prism_assets.metadata import attempts, iceberg_tables, locks, partitions, publication_notes, publications
from prism_assets.metadata import database as database_module
from prism_assets.metadata.database import Database
from prism_assets.metadata.migrations import versions
from prism_assets_tests.metadata.rows import NOON, Rows
from prism_assets_tests.metadata.sessions import Session, Sessions
from prism_assets_tests.postgres import PostgresServer

LATE = ("prism_staging_objects_done", "prism_small_objects_delayed", "prism_partitions_unmerged")
"""Indexes of tables that were in use when they were thought of."""


@pytest.fixture
def old_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def old(old_url: str) -> Iterator[Rows]:
    """A database of version 0002 with rows."""
    made = Database(old_url)
    rows = Rows(made)
    rows.small(rows.table(), 3, delayed=True)
    downgrade(rows, "0002")
    yield rows
    made.dispose()


def downgrade(rows: Rows, revision: str) -> None:
    with rows.database.begin() as connection:
        config = alembic.config.Config()
        config.set_main_option("script_location", str(Path(str(versions.__path__[0])).parent))
        config.attributes["connection"] = connection
        alembic.command.downgrade(config, revision)


@pytest.fixture
def sessions(old: Rows) -> Iterator[Sessions]:
    made = Sessions(old.database)
    yield made
    made.close()


def valid_indexes(rows: Rows, names: Sequence[str] = LATE) -> list[str]:
    statement = (
        "SELECT name FROM unnest(CAST(:names AS text[])) WITH ORDINALITY AS n (name, place) "
        "JOIN pg_index ON indexrelid = to_regclass(name) WHERE indisvalid ORDER BY place"
    )
    return [row[0] for row in rows.sql(statement, names=list(names))]


def version(rows: Rows) -> str:
    return str(rows.value("SELECT version_num FROM alembic_version"))


def forget_indexes(rows: Rows) -> None:
    downgrade(rows, "0003")


def wait_for_migration(sessions: Sessions, index: str = "") -> None:
    """Returns when a migration that builds an index, or a certain one, waits for transactions that are older."""
    watching = sessions.open()
    statement = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :query"
    for _ in range(2_000):
        if watching.sql(statement, query=f"CREATE INDEX CONCURRENTLY {index}%")[0][0]:
            watching.commit()
            return
        watching.sql("SELECT pg_sleep(0.005)")
        watching.sql("SELECT pg_stat_clear_snapshot()")
    raise AssertionError("no migration waits")


WRITES = {
    "prism_staging_objects": "UPDATE prism_staging_objects SET last_error = NULL",
    "prism_small_objects": "UPDATE prism_small_objects SET content_length = 100",
    "prism_partitions": "UPDATE prism_partitions SET closing_batch_id = NULL",
}


@pytest.mark.parametrize("table", WRITES)
def test_an_index_is_built_while_others_write(old: Rows, sessions: Sessions, table: str) -> None:
    """A transaction that wrote before holds the index up; what begins after it must not wait for both."""
    old.database.migrate()
    forget_indexes(old)
    slow, quick = sessions.open(), sessions.open()
    slow.sql(WRITES[table] + " WHERE false")
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(old.database.migrate)
        wait_for_migration(sessions)
        quick.sql("SET LOCAL lock_timeout = '2s'")
        quick.sql(WRITES[table])
        quick.commit()
        assert not migration.done()
        slow.commit()
        migration.result(timeout=30)
    assert valid_indexes(old) == list(LATE)


def test_partitions_are_not_locked_while_the_index_of_objects_is_built(old: Rows, sessions: Sessions) -> None:
    slow, quick = sessions.open(), sessions.open()
    slow.sql(WRITES["prism_staging_objects"] + " WHERE false")
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(old.database.migrate)
        wait_for_migration(sessions)
        quick.sql("SET LOCAL lock_timeout = '2s'")
        assert quick.sql("SELECT count(*) FROM prism_partitions") == [(1,)]
        quick.commit()
        slow.commit()
        migration.result(timeout=30)


def test_an_index_that_a_death_left_invalid_is_built_anew(old: Rows) -> None:
    old.database.migrate()
    downgrade(old, "0005")
    old.sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'prism_small_objects_delayed'::regclass")
    old.sql("UPDATE alembic_version SET version_num = '0004'")
    assert len(valid_indexes(old)) == 2
    old.database.migrate()
    assert valid_indexes(old) == list(LATE)


def test_a_death_between_two_indexes_is_made_up_for(old: Rows) -> None:
    old.database.migrate()
    head = version(old)
    downgrade(old, "0005")
    old.sql("DROP INDEX prism_partitions_unmerged")
    old.sql("UPDATE alembic_version SET version_num = '0003'")
    old.database.migrate()
    assert (version(old), valid_indexes(old)) == (head, list(LATE))


def test_a_migration_that_is_broken_off_is_finished_by_the_next(old: Rows, sessions: Sessions) -> None:
    """The server ends the session while the index waits; what was built so far is invalid."""
    slow, other = sessions.open(), sessions.open()
    slow.sql(WRITES["prism_staging_objects"] + " WHERE false")
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(old.database.migrate)
        wait_for_migration(sessions)
        other.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%'")
        assert migration.exception(timeout=30) is not None
    slow.commit()
    assert version(old) == "0003"
    old.database.migrate()
    assert valid_indexes(old) == list(LATE)


def test_migrations_wait_for_each_other_without_being_in_each_others_way(old: Rows) -> None:
    with ThreadPoolExecutor(4) as threads:
        migrations = [threads.submit(old.database.migrate) for _ in range(4)]
        wait(migrations, timeout=60)
    assert [migration.exception(timeout=0) for migration in migrations] == [None] * 4
    assert valid_indexes(old) == list(LATE)


def test_a_migration_waits_for_the_one_that_is_running(
    old: Rows, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_MIGRATION_PAUSE", 0.01)
    running = sessions.open()
    running.sql("SELECT pg_advisory_xact_lock(:lock)", lock=locks.MIGRATION)
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(old.database.migrate)
        assert not wait([migration], timeout=0.3).done
        assert version(old) == "0002"
        running.commit()
        migration.result(timeout=30)
    assert valid_indexes(old) == list(LATE)


def test_a_migration_leaves_no_lock_behind(old: Rows) -> None:
    old.database.migrate()
    with old.database.begin() as connection:
        statement = text("SELECT pg_try_advisory_xact_lock(:lock)")
        assert connection.execute(statement, {"lock": locks.MIGRATION}).scalar_one()
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "30s"


def test_a_migration_that_has_begun_is_not_cut_off(old: Rows, old_url: str, sessions: Sessions) -> None:
    """It would begin anew each time, and never end."""
    other = sessions.open()
    other.sql("LOCK TABLE prism_tables IN SHARE MODE")
    fail_fast = Database(old_url, lambda: 0.5)
    timer = threading.Timer(1.5, other.commit)
    timer.start()
    begun = time.monotonic()
    fail_fast.migrate()
    assert time.monotonic() - begun > 1.3
    timer.join()
    fail_fast.dispose()


def test_publications_that_a_former_version_had_under_way_keep_their_note(old: Rows) -> None:
    """And every table is compared once with the catalog, as nobody knows when it was."""
    old.sql("UPDATE prism_tables SET unsettled_publications = 2")
    old.database.migrate()
    with old.database.begin() as connection:
        (due,) = publication_notes.load_comparisons_due(connection, [1], 3_600, 60).values()
    assert (due.notes, due.worker, due.is_stale) == (1, "a former version", True)
    assert old.sql("SELECT expire_time > clock_timestamp() + interval '9 minutes' FROM prism_publication_notes") == [
        (True,)
    ]


SINCE_0006 = (
    "prism_staging_objects_suspects",
    "prism_staging_objects_overwritten",
    "prism_staging_objects_outages",
    "prism_staging_objects_quarantined",
    "prism_staging_objects_unfit",
    "prism_quarantine_reason",
)


def fill_quarantine(rows: Rows) -> None:
    """An index of an empty table is not built while others use it."""
    rows.sql(
        "INSERT INTO prism_quarantine (prism_staging_object_id, reason, line_count, create_time) "
        "SELECT prism_staging_object_id, 'not_json', 1, now() FROM prism_staging_objects"
    )


def a_report(sessions: Sessions) -> Session:
    """A transaction that only reads and locks nothing: the last step of an index waits for those of before it."""
    made = sessions.open()
    made.sql("DECLARE report CURSOR FOR SELECT 1")
    return made


def break_off(rows: Rows, sessions: Sessions, index: str) -> None:
    """Migrates, and has the server end the migration while it builds an index."""
    built = SINCE_0006[: SINCE_0006.index(index) + 1]
    report = a_report(sessions)
    with ThreadPoolExecutor(1) as thread:
        migration = thread.submit(rows.database.migrate)
        for earlier in built[:-1]:
            wait_for_migration(sessions, earlier)
            before, report = report, a_report(sessions)
            before.commit()
        wait_for_migration(sessions, index)
        rows.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%'")
        assert migration.exception(timeout=30) is not None
    report.commit()


@pytest.mark.parametrize("index", SINCE_0006)
def test_an_upgrade_that_is_broken_off_at_any_index_is_finished_by_the_next(
    old: Rows, sessions: Sessions, index: str
) -> None:
    old.database.migrate()
    head = version(old)
    fill_quarantine(old)
    downgrade(old, "0006")
    break_off(old, sessions, index)
    assert version(old) != head
    old.database.migrate()
    assert (version(old), valid_indexes(old, SINCE_0006)) == (head, list(SINCE_0006))


def revisions_with_indexes() -> list[tuple[str, str]]:
    """Each migration that builds indexes, with the one before it."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(str(versions.__path__[0])).parent))
    found = alembic.script.ScriptDirectory.from_config(config).walk_revisions()
    return [(item.revision, str(item.down_revision)) for item in found if "build_index" in Path(item.path).read_text()]


@pytest.mark.parametrize(("revision", "before"), revisions_with_indexes())
def test_what_a_migration_does_before_it_builds_indexes_can_be_done_again(
    old: Rows, revision: str, before: str
) -> None:
    """It was committed, and the version was not recorded."""
    old.database.migrate()
    head = version(old)
    downgrade(old, revision)
    old.sql("UPDATE alembic_version SET version_num = :before", before=before)
    old.database.migrate()
    assert version(old) == head


def test_objects_that_a_former_version_gave_up_are_not_begun_anew_by_the_upgrade(old: Rows) -> None:
    """Their retry time is that of their last attempt; one that is tried again by itself keeps its own."""
    old.database.migrate()
    old.sql("UPDATE prism_staging_objects SET state = 'failed', retry_time = now() - interval '30 days'")
    downgrade(old, "0006")
    old.database.migrate()
    with old.database.begin() as connection:
        assert attempts.retry_due(connection, None) == 0
    old.sql("UPDATE prism_staging_objects SET retry_time = now() - interval '1 day' WHERE prism_staging_object_id = 1")
    downgrade(old, "0007")
    old.sql("UPDATE alembic_version SET version_num = '0006'")
    old.database.migrate()
    with old.database.begin() as connection:
        assert attempts.retry_due(connection, None) == 1


PARTITIONS_OF_0015 = {
    # date: current version, desired version, last live object, switched, published object, last object, revisions
    "2026-01-01": "-1, 0, NULL, false, NULL, 3, 0, 0",  # new
    "2026-01-02": "0, 0, NULL, false, 0, 3, 0, 0",  # live
    "2026-01-03": "-1, 0, 3, false, NULL, 3, 0, 0",  # closed before it was ever shown
    "2026-01-04": "0, 0, 3, false, 2, 3, 0, 0",  # closed, an object behind
    "2026-01-05": "0, 0, 3, false, 3, 3, 0, 0",  # closed, at rest
    "2026-01-06": "0, 3, 3, true, 3, 3, 0, 0",  # switched, ranges to be shown
    "2026-01-07": "3, 3, 3, true, 3, 4, 0, 0",  # switched, a late object
    "2026-01-08": "3, 3, 3, true, 3, 3, 1, 0",  # repaired
    "2026-01-09": "3, 3, 3, true, 3, 3, 1, 1",  # at rest
}
OF_0015 = (
    "current_manifest_version, desired_manifest_version, last_live_object_id, switched, published_object_id, "
    "last_object_id, revision, published_revision"
)


def test_what_is_recorded_of_publications_comes_through_its_migration_there_and_back(old_url: str) -> None:
    rows = Rows(Database(old_url))
    table = rows.table().table_id
    downgrade(rows, "0015")
    for day, values in PARTITIONS_OF_0015.items():
        rows.sql(
            f"INSERT INTO prism_partitions (prism_table_id, partition_date, closing_batch_id, {OF_0015}) "
            f"VALUES ({table}, '{day}', 1, {values})"
        )
    states = "SELECT * FROM prism_partitions ORDER BY partition_date"
    before = [tuple(row._mapping[name] for name in OF_0015.split(", ")) for row in rows.sql(states)]
    rows.database.migrate()
    with rows.database.begin() as connection:
        pending = [item.date.day for item in partitions.load_pending(connection, [table])]
        found = partitions.load_table_partitions(connection, table)
    assert pending == [1, 2, 3, 4, 5, 6, 7, 8], "all but the one at rest"
    assert [item.date.day for item in found if publication_due(item)] == [1, 3, 4, 6, 7, 8]
    downgrade(rows, "0015")
    after = [tuple(row._mapping[name] for name in OF_0015.split(", ")) for row in rows.sql(states)]
    assert [[value or 0 for value in row] for row in after] == [[value or 0 for value in row] for row in before]
    rows.database.dispose()


REVISIONS_OF_0027 = {
    # date: revision, that of what the Iceberg table lists, whether it was withdrawn; whether a repair waits
    "2026-01-01": (0, 0, False, False),
    "2026-01-02": (2, 1, False, True),
    "2026-01-03": (2, 2, False, False),
    "2026-01-04": (2, 0, True, False),
}


def test_a_repair_that_waits_for_its_commit_is_still_one_after_the_upgrade(old_url: str) -> None:
    rows = Rows(Database(old_url))
    table = rows.table().table_id
    downgrade(rows, "0027")
    for day, (revision, published, withdrawn, _) in REVISIONS_OF_0027.items():
        rows.sql(
            "WITH p AS (INSERT INTO prism_partitions (prism_table_id, partition_date, last_object_id, revision) "
            f"VALUES ({table}, '{day}', 1, {revision}) RETURNING prism_partition_id) INSERT INTO prism_publications "
            "(prism_partition_id, publisher, version, published_object_id, revision, dirty, withdraw_time) "
            f"SELECT prism_partition_id, 'iceberg', 0, 1, {published}, true, "
            f"CASE WHEN {withdrawn} THEN clock_timestamp() END FROM p"
        )
    rows.database.migrate()
    with rows.database.begin() as connection:
        found = iceberg_tables.load_days(connection, table, dirty_only=True)
    waits = {str(item.date): item.repairs != item.published_repairs for item in found}
    assert waits == {day: values[-1] for day, values in REVISIONS_OF_0027.items()}
    rows.database.dispose()


def test_definitions_that_ask_for_symlinks_can_be_read_by_the_version_before(old_url: str) -> None:
    rows = Rows(Database(old_url))
    rows.table()
    asking = "UPDATE prism_table_definitions SET definition = definition || jsonb_build_object('symlink', true)"
    rows.sql(asking)
    downgrade(rows, "0033")
    assert rows.value("SELECT count(*) FROM prism_table_definitions WHERE definition ->> 'symlink' IS NOT NULL") == 0
    rows.database.dispose()


def test_late_objects_that_a_former_version_commits_after_the_migration_are_looked_for(rows: Rows) -> None:
    """Its statements name no column that is gone."""
    partition = rows.partition(rows.table())
    rows.sql("UPDATE prism_partitions SET closing_batch_id = 1, last_live_object_id = 1, last_object_id = 1")
    with rows.database.begin() as connection:
        partitions.lock_partition(connection, partition)
        publications.advance(connection, partition, "glue", Publication(0, 1), NOON, dirty=False)
    assert rows.sql("SELECT dirty FROM prism_publications") == [(False,)]
    rows.sql("UPDATE prism_partitions SET last_object_id = greatest(last_object_id, 2)")
    assert rows.sql("SELECT dirty FROM prism_publications") == [(True,)]
