"""`prism kafka` without brokers: what it prints, and what it refuses. `kafka/test_decisions.py` has a broker."""

from __future__ import annotations

import re

import pytest

from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.command.test_errors import fails
from prism_assets_tests.topics import TopicRows, a_topic_table

SKIP = ("kafka", "skip", "log.events", "--partition", "0", "--to", "earliest", "--reason")


@pytest.fixture
def topic(prism: Prism) -> TopicRows:
    """Two partitions: one behind, one stopped."""
    prism.world.apply(a_topic_table())
    made = TopicRows.register(prism.world.context.database, starts=(0, 100))
    made.read(1_200)
    made.set("end_offset = 4300, complete_time = now() - interval '90 seconds'")
    made.stop("partition 1 cannot be read", partition=1)
    return made


def test_status_has_a_line_for_each_partition_and_says_why_brokers_were_not_asked(
    prism: Prism, topic: TopicRows
) -> None:
    said = prism.ok("kafka", "status").out.splitlines()
    assert said[0] == "log.events: kafka://main/app.events, id T1"
    assert said[1].split() == ["partition", "next", "last", "stable", "lag", "seconds", "state", "worker"]
    *offsets, seconds, state, worker = said[2].split()
    assert (offsets, state, worker) == (["0", "1,200", "4,300", "3,100"], "reading", "host:1")
    assert 90 <= int(seconds) < 900  # the clock goes on while the command starts
    assert said[3].split() == ["1", "100", "100", "0", "0", "stopped", "-"]
    assert said[4].strip() == "partition 1 cannot be read"
    assert (
        said[5].strip().startswith("ends are those that workers saw last: there is no connection to the Kafka cluster")
    )
    (found,) = prism.ok("kafka", "status", "log.events", "--json").json
    assert [item["lag_offsets"] for item in found["partitions"]] == [3_100, 0]
    assert found["topic_id"] == "T1"


def test_status_of_tables_has_a_line_for_each_topic(prism: Prism, topic: TopicRows) -> None:
    said = prism.ok("status").out
    wanted = (
        r"kafka://main/app\.events: 2 partitions, 1 stopped, 3,100 offsets behind, \d+(\.\d{1,2})?m, read by host:1"
    )
    assert re.search(wanted, said)
    assert "partition 1 cannot be read" in said
    (table,) = prism.ok("status", "--json").json
    assert table["topics"][0]["partitions"][1]["state"] == "stopped"


def test_a_run_until_idle_ends_with_status_1_while_a_partition_waits_for_a_person(
    prism: Prism, topic: TopicRows
) -> None:
    done = prism("run", "--until-idle")
    assert done.status == 1
    assert "left for a person: log.events: since " in done.err
    assert "partition 1 cannot be read" in done.err


def test_a_table_without_topics_is_no_table_to_skip_in(prism: Prism) -> None:
    prism.world.apply(a_table())
    assert prism.ok("kafka", "status").out == "no table reads a topic\n"
    fails(prism(*SKIP, "why"), 2, "log.events has no stream in use that reads a topic")


def test_a_skip_without_a_reason_or_without_a_connection_does_nothing(prism: Prism, topic: TopicRows) -> None:
    fails(prism(*SKIP, " "), 2, "--reason says nothing")
    fails(prism(*SKIP, "why"), 2, "there is no connection to the Kafka cluster main")
    fails(prism("kafka", "restart", "log.events", "--from", "soon"), 2, "soon is no start")
    assert topic.sql("SELECT 1 FROM prism_offset_ranges WHERE kind = 'skipped'") == []
