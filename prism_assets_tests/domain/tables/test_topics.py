"""Streams of topics in table files: what a file says, and the sentence for each mistake."""

from __future__ import annotations

from datetime import datetime

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.streams.topic import Topic, time_of_start
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets_tests.builders import utc

FILE = """\
schema: log
table: events
streams:
  - {STREAM}
columns:
  - {name: time, type: timestamp, source: "@timestamp"}
  - {name: id, type: bigint}
"""


def table_of(stream: str, more: str = "") -> TableDefinition:
    return parse_table_file(FILE.replace("{STREAM}", f"{{name: app, {stream}}}{more}"), "t.yaml")


def problem_of(stream: str, more: str = "") -> str:
    with pytest.raises(DefinitionError) as refused:
        table_of(stream, more)
    (line,) = str(refused.value).splitlines()
    return line


def topic_of(stream: str) -> Topic:
    (stream_of_file,) = table_of(stream).streams
    assert stream_of_file.topic is not None
    return stream_of_file.topic


def test_a_topic_alone_has_all_defaults() -> None:
    assert topic_of("topic: app.events") == Topic(cluster="main", name="app.events")


def test_a_topic_says_all_of_it() -> None:
    said = (
        "topic: app.events, cluster: audit, start: latest, tombstones: row, spool_days: 7, "
        "flush: {seconds: 0.5, bytes: 16MiB}"
    )
    assert topic_of(said) == Topic(
        cluster="audit", name="app.events", start="latest", tombstones="row", spool_days=7, flush_seconds=0.5,
        flush_bytes=16 << 20,
    )  # fmt: skip


def test_a_stream_of_a_topic_has_its_cluster_in_place_of_a_bucket() -> None:
    (stream,) = table_of("topic: app.events, cluster: audit").streams
    assert (stream.bucket, stream.key_prefix, stream.url) == ("kafka:audit", "app.events/", "kafka://audit/app.events")


def test_a_topic_survives_the_way_through_the_database() -> None:
    table = table_of("topic: app.events, start: latest, flush: {bytes: 1MiB}")
    assert TableDefinition.from_json(table.to_json()) == table


@pytest.mark.parametrize(
    "start", ["2026-11-01T00:00:00Z", '"2026-11-01T00:00:00Z"', "2026-11-01T09:00:00+09:00", "2026-11-01 00:00:00Z"]
)
def test_one_time_has_one_text_however_the_file_writes_it(start: str) -> None:
    topic = topic_of(f"topic: app.events, start: {start}")
    assert topic.start == "2026-11-01T00:00:00+00:00"
    assert time_of_start(topic.start) == utc("2026-11-01T00:00")


@pytest.mark.parametrize("start", ["2026-11-01", "2026-11-01T00:00:00", "yesterday", "12", "null"])
def test_a_start_without_a_time_and_its_offset_is_refused(start: str) -> None:
    assert problem_of(f"topic: app.events, start: {start}").startswith("t.yaml:4: streams[0].start: must be ")


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ('topic: app, url: "s3://staging/app/"', "url: must not stand beside `topic`"),
        ('topic: app, include: ["*.gz"]', "include: has no meaning for a topic"),
        ('topic: app, exclude: ["*.gz"]', "exclude: has no meaning for a topic"),
        ("topic: app, route: {otherwise: true}", "route: divides a prefix between tables"),
        ("topic: app, discard: true", "discard: is for objects in S3; write `enabled: false`"),
        ("topic: app, format: {json: {records: $.Records}}", "format: has `records`, and a message"),
        ("topic: app, format: {csv: {header: true}}", "format: has `header: true`, and messages"),
        ('topic: "a b"', "topic: must be the name of a topic"),
        ('topic: ".."', "topic: must be the name of a topic"),
        ("topic: app, cluster: Main", "cluster: must begin with a-z"),
        ("topic: app, flush: {bytes: 64MB}", "flush.bytes: must be a number of bytes"),
        ("topic: app, flush: {bytes: 2GiB}", "flush.bytes: must lie between 1,024 and 1,073,741,824 bytes"),
        ("topic: app, flush: {bites: 1}", "flush.bites: is not a known field"),
        ('url: "s3://staging/app/", cluster: main', "cluster: has an effect beside `topic` only"),
        ('url: "s3://staging/app/", spool_days: 3', "spool_days: has an effect beside `topic` only"),
    ],
)
def test_a_mistake_is_one_problem_with_its_remedy(stream: str, problem: str) -> None:
    assert problem_of(stream).startswith(f"t.yaml:4: streams[0].{problem}")


def test_a_table_reads_a_topic_once() -> None:
    problem = problem_of("topic: app", "\n  - {name: again, topic: app, start: latest}")
    assert problem == "t.yaml:5: streams[1].topic: kafka://main/app is read by app, too: a table reads a topic once"


def test_topics_of_one_name_in_two_clusters_are_two_streams() -> None:
    assert len(table_of("topic: app", "\n  - {name: other, topic: app, cluster: other}").streams) == 2


def test_a_value_around_a_record_is_refused_in_a_topic() -> None:
    text = FILE.replace("{STREAM}", "{name: app, topic: app}").replace(
        "type: bigint", "type: bigint, source: $outer.id"
    )
    with pytest.raises(DefinitionError, match="whose messages have nothing around them"):
        parse_table_file(text, "t.yaml")


def test_spool_objects_belong_to_the_stream_of_their_topic_in_any_bucket() -> None:
    table = table_of("topic: app", '\n  - {name: rest, url: "s3://lake/"}')
    key = "lake/0a1b.log.events/spool/main/app/dt=2026-11-01/AbC_d-e-00003-0000000000000000012-0123456789abcdef.parquet"
    app, rest = table.streams
    assert table.stream_of("lake", key) is app
    assert table.stream_of("lake", key.replace("/app/", "/other/")) is rest
    assert table.stream_of("lake", "spool/main/app/dt=2026-11-01/name.parquet") is rest


def test_the_start_is_kept_as_a_text_with_an_offset() -> None:
    assert datetime.fromisoformat(topic_of("topic: app, start: 2026-11-01T00:00:00Z").start).utcoffset() is not None
