"""Topics that wait for a person: their findings, and their checks."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.findings import Acts, Finding
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import CHECKS, run_checks
from prism_assets.stages.checks.topics import LAG, OFFSETS_CONTIGUOUS
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.findings.topics import OFFSETS_SKIPPED, SKIPPED, TOPICS, TOPICS_READ
from prism_assets_tests.builders import a_table
from prism_assets_tests.findings import says
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.topics import TopicRows, a_topic_table
from prism_assets_tests.world import World

OF_TOPICS = {TOPICS_READ, OFFSETS_SKIPPED, OFFSETS_CONTIGUOUS, LAG}


def present() -> datetime:
    return datetime.now(timezone.utc)


@pytest.fixture
def topic(world: World) -> TopicRows:
    """A topic with two partitions, which a worker reads."""
    world.apply(a_topic_table())
    return TopicRows.register(world.context.database, starts=(0, 100))


def found(world: World) -> tuple[Finding, ...]:
    return read_findings(world.context, None, [TOPICS, SKIPPED], now=present())


def check(world: World, name: str, limits: CheckLimits | None = None) -> CheckOutcome:
    given = {"log.events": limits} if limits else {}
    (outcome,) = run_checks(world.context, [name], now=present(), names=["log.events"], limits=given)
    return outcome


def test_a_topic_that_workers_read_has_no_finding_and_passes_its_checks(world: World, topic: TopicRows) -> None:
    topic.read(10)
    assert found(world) == ()
    outcomes = [check(world, name) for name in sorted(OF_TOPICS)]
    assert [outcome.sentence for outcome in outcomes if not outcome.passed] == []


def test_tables_without_topics_have_none_of_these_checks_and_cost_no_statement(world: World) -> None:
    world.apply(a_table())
    (table,) = world.context.choose_tables(None)
    assert not OF_TOPICS & {check.name for check in CHECKS.values() if check.is_of(table)}
    with counted_statements() as asked:
        assert found(world) == ()
    assert not [statement for statement in asked if "prism_topic" in statement]


def test_a_stopped_partition_waits_for_a_person_who_is_told_the_command(world: World, topic: TopicRows) -> None:
    topic.read(7)
    topic.stop("partition 0 cannot be read: decide with `prism kafka skip log.events --partition 0 --to earliest`")
    (finding,) = found(world)
    assert (finding.kind, finding.acts, finding.invariant) == ("stopped_partition", Acts.PERSON, "I10")
    assert finding.says.startswith("since 2")
    assert finding.says.endswith("decide with `prism kafka skip log.events --partition 0 --to earliest`")
    assert not check(world, TOPICS_READ).passed


def test_a_stopped_topic_has_one_finding_for_all_its_partitions(world: World, topic: TopicRows) -> None:
    topic.stop()
    topic.sql(
        "UPDATE prism_topics SET last_error = 'it is another topic', error_time = now() WHERE prism_topic_id = :topic"
    )
    topic.set("heartbeat_time = now() - interval '1 day'", partition=1)
    (finding,) = found(world)
    assert finding.kind == "stopped_topic"
    assert finding.says.endswith("it is another topic")


def test_a_topic_without_a_heartbeat_for_a_minute_waits_for_a_person(world: World, topic: TopicRows) -> None:
    for partition in (0, 1):
        topic.set("heartbeat_time = clock_timestamp() - interval '59 seconds'", partition=partition)
    assert found(world) == ()
    topic.set("heartbeat_time = clock_timestamp() - interval '61 seconds'")
    assert says(found(world)) == ["1 partition of kafka://main/app.events (0) is read by no worker for 1.02m"]
    topic.set("heartbeat_time = clock_timestamp() - interval '2 hours'", partition=1)
    (finding,) = found(world)
    assert finding.says == "kafka://main/app.events is read by no worker for 1.02m"
    assert (finding.acts, finding.count) == (Acts.PERSON, 2)


def test_a_topic_that_no_worker_has_registered_is_told(world: World) -> None:
    world.apply(a_topic_table())
    (finding,) = found(world)
    assert finding.kind == "unread_topic"
    assert finding.says.startswith("no worker has begun to read kafka://main/app.events for ")
    assert "PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS" in finding.remedy


def test_a_stopped_stream_waits_for_nobody(world: World, topic: TopicRows) -> None:
    topic.stop()
    world.apply(a_topic_table().replace("cluster: main", "cluster: main, enabled: false"))
    assert found(world) == ()


def test_skipped_offsets_are_told_for_a_week_and_by_doctor_for_good(world: World, topic: TopicRows) -> None:
    topic.read(5)
    topic.sql(
        "INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind, reason) "
        "VALUES (:topic, 0, 5, 9, 'skipped', 'ada@desk: retention')"
    )
    topic.set("next_offset = 9")
    (finding,) = found(world)
    assert (finding.kind, finding.acts, finding.count) == ("skipped_offsets", Acts.TIME, 4)
    assert finding.says.startswith("offsets 5 to 8 of partition 0 of topic app.events were skipped at ")
    assert finding.says.endswith("by ada@desk: retention")
    assert not check(world, OFFSETS_SKIPPED).passed
    topic.sql("UPDATE prism_offset_ranges SET create_time = now() - interval '8 days' WHERE prism_topic_id = :topic")
    assert found(world) == ()
    report = run_doctor(world.context)
    assert report.is_clean
    note, not_asked = report.notes
    assert "there is no connection to the Kafka cluster main" in not_asked
    assert note.startswith("log.events: offsets 5 to 8 of partition 0")


def test_a_gap_and_an_overlap_of_offsets_fail_the_blocking_check_and_doctor(world: World, topic: TopicRows) -> None:
    topic.read(10)
    topic.read(110, partition=1)
    outcome = check(world, OFFSETS_CONTIGUOUS)
    assert outcome.sentence == "the last 4 ranges of 2 partitions hold 20 offsets, each once"
    topic.set("next_offset = 12")
    outcome = check(world, OFFSETS_CONTIGUOUS)
    assert CHECKS[OFFSETS_CONTIGUOUS].blocking
    assert "partition 0 of app.events stands at 12, and its ranges from 0 hold 10 of 12 offsets" in outcome.sentence
    assert outcome.figures["partitions out of balance"] == 1
    (finding,) = run_doctor(world.context).findings
    assert (finding.kind, finding.invariant) == ("unequal_offsets", "I1")


def test_messages_of_an_object_are_compared_with_its_lines(world: World, topic: TopicRows) -> None:
    topic.sql(
        "INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, "
        "first_receive_time, state, definition_version, lines_in, rows_out, rows_quarantined) SELECT prism_stream_id, "
        "prism_table_id, 'lake', 'spool/x', 1, now(), 'done', 1, 3, 0, 3 FROM prism_streams"
    )
    ((staging,),) = topic.sql("SELECT prism_staging_object_id FROM prism_staging_objects")
    topic.read(4, staging=staging)
    kinds = [item.kind for item in run_doctor(world.context).findings]
    assert "unequal_records" in kinds


def test_lag_counts_from_the_moment_that_the_worker_fell_behind(world: World, topic: TopicRows) -> None:
    topic.read(10)
    topic.set("last_message_time = now() - interval '3 days'")
    assert check(world, LAG).sentence == "every message was read when the workers last looked"
    topic.set("end_offset = 15, complete_time = now() - interval '1 minute'")
    assert check(world, LAG).passed
    assert check(world, LAG).sentence == "5 offsets wait, the longest for 1m"
    topic.set("complete_time = now() - interval '20 minutes'")
    outcome = check(world, LAG)
    assert outcome.sentence.startswith("kafka://main/app.events is 5 offsets and 20m behind (limit 15m)")
    assert check(world, LAG, CheckLimits(lag_minutes=30)).passed


def test_a_busy_topic_that_is_never_read_to_its_end_is_not_late(world: World, topic: TopicRows) -> None:
    topic.read(10)
    topic.set("end_offset = 15, complete_time = now() - interval '2 days', last_message_time = now()")
    assert check(world, LAG).passed
