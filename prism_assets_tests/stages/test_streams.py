"""Streams that are stopped, discarded, read differently, moved to another table, or removed."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.metadata.intake import attempts
from prism_assets.metadata.intake.backlog import count_pending
from prism_assets.stages.apply.run import apply_sound
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets.stages.findings.objects import UNREAD, UNREAD_OBJECTS, WAITING
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.run import run_until_idle
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.commit import release_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.stages.test_repair import small_keys
from prism_assets_tests.world import World

NOON, MORNING = "2026-03-01T12:00", "2026-03-02T00:30"
STOPPED = a_table().replace('/events/"}', '/events/", enabled: false}')
DISCARDED = a_table().replace('/events/"}', '/events/", discard: true}')
ELSEWHERE = a_table().replace("staging/events/", "staging/elsewhere/")
TAKER = a_table("log.taker").replace("staging/taker/", "staging/events/")


def drop(world: World, count: int = 1, stream: str = "events") -> list[int]:
    rows = some_rows(count, utc(NOON))
    world.drop(rows, stream=stream)
    return [row["id"] for row in rows]


def states(world: World) -> list[tuple[Any, ...]]:
    statement = "SELECT state, lines_in, rows_out FROM prism_staging_objects ORDER BY prism_staging_object_id"
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def tables_of_objects(world: World) -> list[str]:
    statement = (
        "SELECT table_name FROM prism_staging_objects JOIN prism_tables USING (prism_table_id) ORDER BY object_key"
    )
    with world.context.database.begin() as connection:
        return list(connection.exec_driver_sql(statement).scalars())


def work(world: World) -> dict[int, int]:
    """Returns the counts by which the sensor requests runs."""
    with world.context.database.begin() as connection:
        return {item.table_id: item.pending for item in count_pending(connection, 60)}


def claim_and_release(world: World) -> None:
    """Claims the pending objects with a batch, and returns them unread."""
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    release_batch(world.context, plan)


# stopped


def test_objects_of_a_stopped_stream_wait_and_are_converted_when_it_is_read_again(world: World) -> None:
    world.apply(a_table())
    before = drop(world)
    world.stream(NOON)
    assert world.apply(STOPPED).lines == ("stop stream events of log.events at s3://staging/events/: objects wait",)
    later = drop(world)
    assert (world.discover(NOON).new, run_stream(world.context, now=utc(NOON)).batches) == (1, 0)
    assert [state for state, *_ in states(world)] == ["done", "pending"]
    assert work(world) == {}
    assert world.apply(a_table()).lines == ("read again stream events of log.events at s3://staging/events/",)
    assert world.stream(NOON).objects == 1
    world.catalog(NOON)
    assert world.ids() == before + later


def test_status_and_a_check_say_what_waits_at_a_stopped_stream_and_nothing_else_waits_for_it(world: World) -> None:
    world.apply(STOPPED)
    drop(world)
    drop(world)
    turns = run_until_idle(world.context, clock=lambda: utc(NOON), patience=0)
    assert turns[-1].errors == ()
    (status,) = read_status(world.context, now=utc(NOON))
    (stopped,) = status.findings
    assert (status.pending, stopped.kind, stopped.count) == (0, "stopped_stream", 2)
    assert stopped.text == (
        "2 objects wait at s3://staging/events/, as stream events is stopped. `enabled: true` in the table file has "
        "them converted, `discard: true` beside it counts them done"
    )
    outcome = check(world, UNREAD_OBJECTS, NOON)
    assert (outcome.passed, outcome.figures["stopped_stream"]) == (True, 2)
    assert stopped.text in outcome.sentence
    assert not any(item.ends_runs for item in read_findings(world.context, None, [UNREAD, WAITING], now=utc(NOON)))


def test_a_day_closes_while_objects_wait_at_a_stopped_stream_and_their_rows_come_as_late_ones(world: World) -> None:
    world.apply(a_table())
    early = drop(world, 3)
    world.stream(NOON)
    world.apply(STOPPED)
    late = drop(world, 2)
    world.discover(NOON)
    (report,) = world.catalog(MORNING).tables
    assert (len(report.closed), report.waiting) == (1, ())
    assert world.ids() == early
    world.apply(a_table())
    world.stream(MORNING)
    world.catalog(MORNING)
    assert world.ids() == early + late
    assert check(world, ROWS_BALANCE, MORNING).passed


def test_what_a_batch_has_begun_at_a_stream_that_is_stopped_is_finished_so_that_its_day_closes(world: World) -> None:
    """Its rows may be live ones. The day waits for the object, and otherwise nobody would ever convert it."""
    world.apply(a_table())
    drop(world, 3)
    world.stream(NOON)
    drop(world, 2)
    claim_and_release(world)
    world.apply(STOPPED)
    drop(world, 1)
    world.discover(NOON)
    (report,) = world.catalog(MORNING).tables
    assert [item.reason for item in report.waiting] == [
        "is not closed: 1 staging object that batches claimed before its mark is not converted yet"
    ]
    assert list(work(world).values()) == [1]
    assert run_stream(world.context, now=utc(MORNING), names=["log.events"]).rows_out == 2
    (report,) = world.catalog(MORNING).tables
    assert len(report.closed) == 1
    assert work(world) == {}


# discarded


def test_objects_of_a_discarded_stream_are_counted_done_and_never_read(world: World) -> None:
    world.apply(a_table())
    before = drop(world)
    world.stream(NOON)
    drop(world)
    world.discover(NOON)
    assert world.apply(DISCARDED).lines == ("discard objects of stream events of log.events at s3://staging/events/",)
    world.drop([], body=b"what is discarded is never read")
    world.discover(NOON)
    assert len(work(world)) == 1
    report = run_stream(world.context, now=utc(NOON))
    assert (report.discarded, report.objects, report.errors) == (2, 0, ())
    assert states(world) == [("done", 1, 1), ("done", 0, 0), ("done", 0, 0)]
    assert check(world, ROWS_BALANCE, NOON).passed
    assert work(world) == {}
    world.catalog(NOON)
    assert world.ids() == before
    assert run_stream(world.context, now=utc(NOON)).discarded == 0


def test_an_object_that_was_discarded_stays_so_and_may_be_written_again(world: World) -> None:
    world.apply(DISCARDED)
    key = world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    run_stream(world.context, now=utc(NOON))
    (world.root / "buckets" / "staging" / key).write_bytes(b"something else")
    world.apply(a_table())
    assert world.stream(NOON).batches == 0
    assert check(world, UNREAD_OBJECTS, NOON).figures == {}


def test_a_stream_that_is_stopped_and_discarded_waits(world: World) -> None:
    world.apply(a_table().replace('/events/"}', '/events/", enabled: false, discard: true}'))
    drop(world)
    world.discover(NOON)
    assert run_stream(world.context, now=utc(NOON)).discarded == 0


# named no more


def test_what_had_arrived_at_a_stream_that_leaves_its_file_is_still_converted_as_it_was_read_there(
    world: World,
) -> None:
    named = a_table().replace('/events/"}', '/events/", columns: [{name: id, source: number}]}')
    world.apply(named)
    world.drop([{"time": "2026-03-01T12:00:00Z", "number": 7}])
    world.discover(NOON)
    assert world.apply(ELSEWHERE).lines == (
        "create stream events of log.events at s3://staging/elsewhere/",
        "end stream events of log.events at s3://staging/events/: objects already there are still converted",
    )
    world.drop([{"time": "2026-03-01T12:00:00Z", "number": 8}])
    assert world.discover(NOON).new == 0
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == [7]


def test_a_table_whose_file_is_gone_goes_on_as_before(world: World) -> None:
    world.apply(a_table(), a_table("log.other"))
    (world.settings.tables_dir / "events.yaml").unlink()
    assert world.apply().lines == ()
    ids = drop(world)
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == ids


OTHERWISE = a_table().replace('/events/"}', '/events/", columns: [{name: id, source: number}]}')
RENAMED = ELSEWHERE.replace("{name: id,", "{name: number, was: id, source: id,")


def drop_numbers(world: World, *numbers: int) -> None:
    world.drop([{"time": f"{NOON}:00Z", "number": number} for number in numbers])


def numbers(world: World) -> list[int]:
    """Returns the values of the column first named `id`, under its present name."""
    return [row[0] for row in world.query("SELECT * EXCLUDE (time, dt) FROM log.events ORDER BY 1")]


def test_an_object_is_read_as_its_stream_said_when_that_is_rebuilt_after_it_has_gone(world: World) -> None:
    world.apply(OTHERWISE)
    drop_numbers(world, 7)
    world.stream(NOON)
    for now in (MORNING, "2026-03-02T00:40"):
        world.catalog(now)
        world.merge(now, everything=True)
    world.apply(ELSEWHERE.replace("merge:", "  - {name: extra, type: string}\nmerge:"), now="2026-03-02T01:00")
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc("2026-03-02T02:00")).errors == ()
    world.catalog("2026-03-02T02:10")
    assert numbers(world) == [7]


@pytest.mark.parametrize("state", ["waiting", "begun", "given up"])
def test_an_object_is_read_as_its_stream_said_that_has_gone_before_it_was(world: World, state: str) -> None:
    """Under the definition in force: columns may be called otherwise by now, and no rewrite waits for the object."""
    world.apply(OTHERWISE)
    drop_numbers(world, 7)
    world.discover(NOON)
    if state != "waiting":
        claim_and_release(world)
    if state == "given up":
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_staging_objects SET state = 'failed'")
    world.apply(RENAMED)
    with world.context.database.begin() as connection:
        attempts.retry_failed(connection, None)
    world.stream(NOON)
    world.catalog(NOON)
    assert numbers(world) == [7]


def test_an_object_of_a_moved_stream_is_read_as_the_table_said_that_began_it(world: World) -> None:
    world.apply(OTHERWISE)
    drop_numbers(world, 7)
    claim_and_release(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET state = 'failed'")
    world.apply(TAKER, ELSEWHERE)
    with world.context.database.begin() as connection:
        attempts.retry_failed(connection, None)
    world.stream(NOON)
    world.catalog(NOON)
    assert numbers(world) == [7]


def test_a_column_that_a_gone_stream_computes_from_must_stay_in_the_file(
    world: World,
) -> None:
    amount, number = "  - {name: amount, type: bigint, stored: false}\n", "  - {name: id, type: bigint}\n"
    made = '/events/", columns: [{name: id, value: "amount * 2"}]}'
    world.apply(a_table().replace(number, amount + number).replace('/events/"}', made))
    world.drop([{"time": f"{NOON}:00Z", "amount": 4}])
    world.discover(NOON)
    world.apply(ELSEWHERE)
    report = world.stream(NOON)
    assert (report.retried, report.rows_out) == (1, 0)
    with world.context.database.begin() as connection:
        (why,) = connection.exec_driver_sql("SELECT last_error FROM prism_staging_objects").scalars()
    assert "id.value: there is no column amount above this one" in why
    assert "belongs to a stream that has left the table file" in why
    world.apply(ELSEWHERE.replace(number, amount + number))
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET state = 'failed'")
        attempts.retry_failed(connection, None)
    world.stream(NOON)
    world.catalog(NOON)
    assert numbers(world) == [8]


def named_again_and_gone_again(world: World, *rows: dict[str, Any]) -> None:
    """Converts rows by the first definition of a stream. For a while afterwards the stream has another definition."""
    world.apply(OTHERWISE)
    world.drop(list(rows))
    world.discover(NOON)
    world.apply(ELSEWHERE)
    world.stream(NOON)
    for now in (MORNING, "2026-03-02T00:40"):
        world.catalog(now)
        world.merge(now, everything=True)
    world.apply(OTHERWISE.replace("source: number", "source: other"), now="2026-03-02T00:50")
    world.apply(ELSEWHERE, now="2026-03-02T00:55")


def test_an_object_is_repaired_as_it_was_read_whatever_its_stream_said_later(world: World) -> None:
    world.apply(OTHERWISE)
    drop_numbers(world, 7)
    world.discover(NOON)
    world.apply(ELSEWHERE)
    world.stream(NOON)
    world.catalog(NOON)
    world.apply(OTHERWISE.replace("source: number", "source: other"))
    world.apply(ELSEWHERE)
    world.context.stores.delete("lake", small_keys(world))
    assert run_repair(world.context).errors == ()
    assert numbers(world) == [7]


def test_the_rows_of_other_days_are_found_as_they_were_read_whatever_their_stream_said_later(world: World) -> None:
    late = {"time": "2026-02-28T12:00:00Z", "number": 8, "other": 9}
    named_again_and_gone_again(world, {"time": f"{NOON}:00Z", "number": 7}, late)
    world.apply(ELSEWHERE.replace("merge:", "  - {name: extra, type: string}\nmerge:"), now="2026-03-02T01:00")
    report = run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc("2026-03-02T02:00"))
    assert report.errors == ()


ORIGIN = a_table(columns=["{name: origin, type: string, source: '@stream'}"])


def origins(world: World) -> list[str]:
    return [row[0] for row in world.query("SELECT origin FROM log.events")]


@pytest.mark.parametrize("files", [(TAKER, ORIGIN.replace("staging/events/", "staging/elsewhere/")), ()], ids=str)
def test_an_object_is_of_the_stream_that_it_came_by_whatever_that_is_called_by_now(
    world: World, files: tuple[str, ...]
) -> None:
    """Otherwise a retry would find other rows under its keys, and a repair would write other rows."""
    world.apply(ORIGIN)
    drop(world)
    world.stream(NOON)
    drop(world)
    claim_and_release(world)
    world.apply(*files or [ORIGIN.replace("{name: events, url", "{name: evts, url")])
    world.stream(NOON)
    world.catalog(NOON)
    assert origins(world) == ["events", "events"]
    world.context.stores.delete("lake", small_keys(world))
    assert run_repair(world.context).errors == ()
    assert origins(world) == ["events", "events"]


@pytest.mark.parametrize("named", ["elsewhere", "again"])
def test_what_waits_at_a_stream_is_converted_under_the_definition_in_force_also_after_an_upgrade(
    world: World, named: str
) -> None:
    """The waiting object has a definition version on record although no batch claimed it."""
    world.apply(a_table())
    world.drop([{"time": f"{NOON}:00Z", "id": 1, "extra": "kept"}])
    world.discover(NOON)
    world.apply(ELSEWHERE)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET definition_version = 1")
    extra = "  - {name: extra, type: string}\nmerge:"
    world.apply(a_table().replace("merge:", extra) if named == "again" else TAKER.replace("merge:", extra))
    world.stream(NOON)
    world.catalog(NOON)
    table = "log.events" if named == "again" else "log.taker"
    assert [tuple(row) for row in world.query(f"SELECT id, extra FROM {table}")] == [(1, "kept")]


# several streams, read otherwise


SEVERAL = (
    a_table(
        columns=[
            "{name: mail, type: string, stored: false}",
            "{name: host, type: string, value: \"split_part(mail, '@', 2)\"}",
            "{name: origin, type: string, source: '@stream'}",
        ]
    )
    .replace(
        "streams:\n",
        "streams:\n"
        '  - name: app\n    url: "s3://staging/app/"\n    columns:\n'
        "      - {name: id, source: $.user.id}\n"
        "      - {name: mail, value: \"lower(contact) || '@app'\"}\n"
        "      - {name: host, source: server}\n",
    )
    .replace("columns:\n  -", "columns:\n  - {name: contact, type: string, stored: false}\n  -", 1)
)


def test_streams_of_one_table_may_be_read_otherwise(world: World) -> None:
    world.apply(SEVERAL)
    world.drop([{"time": "2026-03-01T12:00:00Z", "id": 1, "mail": "ann@x.org"}])
    row = {"time": "2026-03-01T12:00:00Z", "id": 9, "user": {"id": 2}, "contact": "BOB", "server": "s7", "mail": "no"}
    world.drop([row], stream="app")
    world.stream(NOON)
    world.catalog(NOON)
    found = [tuple(row) for row in world.query("SELECT id, host, origin FROM log.events ORDER BY id")]
    assert found == [(1, "x.org", "events"), (2, "s7", "app")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{name: id, source: $.user.id}", "{name: idd, source: a}", "streams[0].columns[0].name: idd is not among"),
        ("{name: id, source: $.user.id}", "{name: id}", "streams[0].columns[0].source: is missing; say with source"),
        ("source: server", "type: bigint", "streams[0].columns[2].type: is not a known field"),
        ("source: server", 'source: "/^x/"', "streams[0].columns[2].source"),
        ("lower(contact)", "lower(contct)", "there is no column contct above this one; did you mean contact?"),
        ("lower(contact)", "now()::text", "streams[0].columns[1].value: the function now is not allowed"),
    ],
    ids=["an unknown column", "nothing", "a type", "keys for a text", "an unknown name", "a forbidden function"],
)
def test_what_a_stream_may_not_say_of_columns_is_refused_with_its_place(
    world: World, old: str, new: str, message: str
) -> None:
    assert SEVERAL.count(old) == 1
    text = SEVERAL.replace(old, new)
    if message.endswith("columns[2].source"):
        text = text.replace("host, type: string", "host, type: bigint")
    with pytest.raises(DefinitionError) as raised:
        world.apply(text)
    assert message in str(raised.value)


# moved


def test_a_moved_stream_feeds_the_other_table_from_then_on_and_what_was_begun_stays_with_its_own(world: World) -> None:
    world.apply(a_table())
    converted = drop(world)
    world.stream(NOON)
    begun = drop(world)
    claim_and_release(world)
    waiting = drop(world)
    world.discover(NOON)
    assert world.apply(TAKER, ELSEWHERE).lines == (
        "create stream events of log.events at s3://staging/elsewhere/",
        "end stream events of log.events at s3://staging/events/, which feeds log.taker from now on",
        "create table log.taker with 2 columns",
        "move stream taker at s3://staging/events/ from log.events to log.taker: objects not yet claimed",
    )
    assert tables_of_objects(world) == ["events", "events", "taker"]
    later = drop(world)
    world.discover(NOON)
    assert sorted(work(world).values()) == [1, 2]
    assert run_stream(world.context, now=utc(NOON), names=["log.taker"]).objects == 2
    assert run_stream(world.context, now=utc(NOON), names=["log.events"]).objects == 1
    world.catalog(NOON)
    assert (world.ids(), world.ids("log.taker")) == (converted + begun, waiting + later)
    assert world.apply().lines == ()


def test_a_stream_may_come_back_to_its_table(world: World) -> None:
    world.apply(a_table())
    world.apply(TAKER, ELSEWHERE)
    ids = drop(world)
    world.discover(NOON)
    world.apply(a_table(), TAKER.replace("staging/events/", "staging/taker/"))
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == ids


def test_a_stream_that_left_its_file_before_may_feed_another_table(world: World) -> None:
    world.apply(a_table())
    ids = drop(world)
    world.discover(NOON)
    world.apply(ELSEWHERE)
    world.apply(TAKER)
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids("log.taker") == ids


@pytest.mark.parametrize("given_up", [False, True], ids=["tried again", "given up"])
def test_an_object_that_is_restarted_stays_with_the_table_that_began_it(world: World, given_up: bool) -> None:
    """Uploads of its former start lie in this table's folder, and are searched there."""
    world.apply(a_table())
    ids = drop(world)
    claim_and_release(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET state = 'failed'" if given_up else "SELECT 1")
    world.apply(TAKER, ELSEWHERE)
    with world.context.database.begin() as connection:
        attempts.retry_failed(connection, None)
    world.stream(NOON)
    world.catalog(NOON)
    assert tables_of_objects(world) == ["events"]
    assert world.ids() == ids


def test_two_files_at_one_prefix_without_routes_are_refused_with_place_and_both_names(world: World) -> None:
    with pytest.raises(DefinitionError) as raised:
        world.apply(a_table(), TAKER)
    folder = world.settings.tables_dir
    assert str(raised.value).splitlines() == [
        f"{folder}/{one}.yaml:6: streams[0].url: s3://staging/events/ of log.{one} is read by log.{other}, too: say "
        "`route: {by: $.field, in: [...]}`, and `otherwise: true` in one table; to move the prefix, take it out of the "
        "other file in the same run of apply"
        for one, other in (("events", "taker"), ("taker", "events"))
    ]


def test_a_stream_is_not_taken_from_a_table_whose_file_is_gone_or_wrong(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    (world.settings.tables_dir / "events.yaml").unlink()
    with pytest.raises(DefinitionError) as raised:
        world.apply(TAKER)
    assert str(raised.value).endswith(
        "taker.yaml:6: streams[0].url: s3://staging/events/ of log.taker is read by log.events, too: say `route: {by: "
        "$.field, in: [...]}`, and `otherwise: true` in one table; to move the prefix, take it out of the other file "
        "in the same run of apply"
    )
    (world.settings.tables_dir / "events.yaml").write_text(ELSEWHERE.replace("type: bigint", "type: string"))
    plan = apply_sound(world.context, world.settings.tables_dir, utc(NOON))
    assert len(plan.problems) == 2
    assert plan.lines == ()
