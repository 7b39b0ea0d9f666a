"""Every offset of a topic is read once: what a reader sees after each fault of brokers and workers."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

from prism_assets.metadata import leases
from prism_assets.metadata.kafka import offset_ranges
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.kafka import flush as flushing
from prism_assets_tests.kafka.broker import Broker, events
from prism_assets_tests.kafka.lake import TopicLake, a_topic_table


def test_messages_of_all_partitions_become_rows_and_their_offsets_one_chain(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic(3)
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(300), partitions=3))
    spooler = lake.spool()
    assert lake.convert() == list(range(300))
    broker.send(topic, events(range(300, 330), partitions=3))
    lake.spool(spooler)
    assert lake.convert() == list(range(330))
    assert lake.positions() == [(number, 110, "reading", None) for number in range(3)]
    chain = lake.ranges(2)
    assert chain[0] == (None, 0, "start", 0)
    assert [end for _, end, *_ in chain[:-1]] == [begin for begin, *_ in chain[1:]]
    assert sum(records for *_, records in chain) == 110


def test_a_topic_that_does_not_exist_is_told_and_read_once_it_does(lake: TopicLake, broker: Broker) -> None:
    lake.world.apply(a_topic_table("not.yet"))
    spooler = lake.spooler()
    spooler.turn()
    assert any("not.yet of the cluster main) does not exist" in error for error in spooler.errors)
    broker.create("not.yet")
    broker.send("not.yet", events([1, 2]))
    spooler._next_look = 0.0
    lake.spool(spooler)
    assert lake.convert() == [1, 2]


def test_an_aborted_tail_is_passed_and_leaves_no_lag(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    producer = broker.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    for numbers, is_committed in ((range(10), True), (range(10, 20), False)):
        producer.begin_transaction()
        for _, key, value in events(numbers):
            producer.produce(topic, value, key=key)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    lake.spool()
    assert lake.convert() == list(range(10))
    # The null control: the end of what a consumer sees as messages is not the end of the log.
    naive = lake.rows("SELECT max(r.from_offset + r.records) AS seen FROM prism_offset_ranges r")[0].seen
    assert naive < lake.positions()[0][1] == 22


def test_lag_ends_at_the_last_stable_offset_while_a_transaction_is_open(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(5)))
    producer = broker.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    producer.flush(30)
    spooler = lake.spool()
    spooler._look()
    spooler._look()
    assert lake.rows("SELECT next_offset, end_offset FROM prism_topic_partitions") == [(5, 5)]
    naive = broker.consumer(**{"isolation.level": "read_uncommitted"}).get_watermark_offsets(_place(topic), timeout=10)[
        1
    ]
    assert naive == 6, "the high watermark counts messages that no reader may see yet"
    producer.abort_transaction(30)


def test_a_recreated_topic_stops_the_stream_where_a_position_by_name_reads_on(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(50)))
    spooler = lake.spool()
    spooler.stop()
    broker.delete(topic)
    broker.create(topic)
    broker.send(topic, events(range(1000, 1080)))
    # The null control: 50 messages of the new topic are passed over, without an event.
    naive = broker.consumer(**{"auto.offset.reset": "error"})
    naive.assign([_place(topic, 50)])
    assert [message.offset() for message in naive.consume(30, 10)] == list(range(50, 80))
    naive.close()
    spooler = lake.spooler("b")
    spooler.turn()
    assert any("was recreated" in error and "prism kafka restart log.events" in error for error in spooler.errors)
    assert lake.positions() == [(0, 50, "reading", None)]
    assert "was recreated" in lake.rows("SELECT last_error FROM prism_topics")[0].last_error
    assert lake.convert() == list(range(50))


def test_a_topic_recreated_while_it_is_read_commits_nothing_of_the_new_one(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(50)))
    spooler = lake.spool()
    broker.delete(topic)
    broker.create(topic)
    broker.send(topic, events(range(1000, 1080)))
    lake.turns(spooler, lambda: any("recreated" in error or "another one" in error for error in spooler.errors))
    for _ in range(10):
        spooler.turn()
    assert lake.positions() == [(0, 50, "reading", None)]
    assert lake.convert() == list(range(50))


def test_a_deleted_topic_is_told_by_the_next_look_where_the_client_has_no_event(
    lake: TopicLake, broker: Broker
) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(5)))
    spooler = lake.spool()
    broker.delete(topic)
    lake.turns(spooler, lambda: any("was deleted" in error for error in spooler.errors), seconds=20)
    assert lake.positions() == [(0, 5, "reading", None)]


def test_a_position_below_retention_stops_its_partition_and_no_other(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic(2)
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(100), partitions=2))
    lake.spool().stop()
    broker.send(topic, events(range(100, 200), partitions=2))
    broker.forget_before(topic, 0, 80)
    spooler = lake.spool(lake.spooler("b"))
    lake.turns(spooler, lambda: lake.positions()[0][2] == "stopped")
    first, second = lake.positions()
    assert first[:3] == (0, 50, "stopped")
    assert "prism kafka skip log.events --partition 0" in first[3]
    assert second == (1, 100, "reading", None)
    assert lake.convert() == [*range(100), *range(101, 200, 2)]


@pytest.mark.parametrize("low", [60, 100])
def test_a_silent_reset_stops_the_partition(lake: TopicLake, broker: Broker, low: int) -> None:
    """Also a reset to the end, where no message follows."""
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(100)))
    spooler = lake.spooler()
    spooler._look()
    (reading,) = spooler._readings.values()
    position = reading.positions[0]
    broker.forget_before(topic, 0, low)
    # As if the client had reset the position by itself, which it has done (librdkafka 4224).
    reading.reader.unassign([position.place])
    reading.reader.assign(position.place, low, None)
    lake.turns(spooler, lambda: lake.positions()[0][2] == "stopped")
    assert lake.positions()[0][1] == 0
    # A broker too busy to answer has the partition read again from 0, where the client itself reports the loss.
    assert re.search(f"the first one left is {low}|not available", lake.positions()[0][3])
    assert lake.ranges() == [(None, 0, "start", 0)]


def test_a_truncated_log_stops_the_partition_by_the_epoch_of_its_last_message(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(50)))
    log, copy = broker.topics_folder / f"{topic}-0", broker.topics_folder.parent / "copy"
    broker.stop()
    shutil.copytree(log, copy)
    broker.start()
    broker.send(topic, events(range(50, 100)))
    lake.spool().stop()
    broker.stop()
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    broker.start()
    broker.send(topic, events(range(1000, 1080)))
    # The null control: without the epoch 50 new messages under read offsets are passed over.
    naive = broker.consumer(**{"auto.offset.reset": "error"})
    naive.assign([_place(topic, 100)])
    assert [message.offset() for message in naive.consume(30, 10)] == list(range(100, 130))
    naive.close()
    spooler = lake.spooler("b")
    lake.turns(spooler, lambda: lake.positions()[0][2] == "stopped")
    assert lake.positions()[0][1] == 100
    assert lake.convert() == list(range(100))


@pytest.mark.parametrize("point", ["spool.after_put", "spool.in_commit"])
def test_a_worker_that_stands_still_commits_nothing_and_holds_no_partition(
    lake: TopicLake, broker: Broker, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Inside its transaction, PostgreSQL ends the session: otherwise its locks would hold the partition for ever."""
    monkeypatch.setattr(offset_ranges, "_IDLE_SECONDS", 1)
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(20)))
    slow, quick = lake.spooler("a", lease_seconds=1.0), lake.spooler("b", lease_seconds=1.0)
    stands, is_over = threading.Event(), threading.Event()

    def stand(name: str) -> None:
        if name == point and threading.current_thread() is thread:
            stands.set()
            assert is_over.wait(60)

    monkeypatch.setattr(flushing, "failpoint", stand)

    def read() -> None:
        while not is_over.is_set():
            slow.turn()

    thread = threading.Thread(target=read)
    thread.start()
    assert stands.wait(30)
    lake.spool(quick)
    broker.send(topic, events(range(20, 40)))
    lake.spool(quick)
    is_over.set()
    thread.join(60)
    assert slow.errors
    assert lake.positions() == [(0, 40, "reading", None)]
    assert lake.convert() == list(range(40))


def test_two_workers_register_a_topic_at_once(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic(4)
    lake.world.apply(a_topic_table(topic))
    spoolers = [lake.spooler(name) for name in "abcd"]
    threads = [threading.Thread(target=spooler._look) for spooler in spoolers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [spooler.errors for spooler in spoolers] == [[], [], [], []]
    assert lake.ranges(3) == [(None, 0, "start", 0)]
    assert sum(spooler.figures.partitions for spooler in spoolers) == 4


def test_partitions_that_are_added_begin_at_their_first_message(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    broker.send(topic, events(range(10)))
    lake.world.apply(a_topic_table(topic, stream=", start: latest"))
    spooler = lake.spooler()
    spooler._look()
    broker.send(topic, events(range(10, 20)))
    broker.add_partitions(topic, 3)
    broker.send(topic, events(range(20, 30), partition=2))
    lake.turns(spooler, lambda: len(lake.positions()) == 3)
    lake.spool(spooler)
    assert lake.convert() == list(range(10, 30))


def test_a_killed_broker_is_waited_for(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(10)))
    spooler = lake.spool()
    broker.kill()
    spooler._next_look = 0.0
    for _ in range(3):
        spooler.turn()
    assert any("did not answer" in error for error in spooler.errors)
    broker.start()
    broker.send(topic, events(range(10, 20)))
    spooler._next_look = 0.0
    lake.spool(spooler, seconds=60)
    assert lake.convert() == list(range(20))


def test_a_message_of_15_mb_is_a_row_and_one_above_16_mib_is_quarantined_alone(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic(max_message_bytes=str(20 << 20))
    lake.world.apply(a_topic_table(topic))
    small, large, larger, last = (value or b"" for _, _, value in events([1, 2, 3, 4]))
    padded = [
        part.replace(b"}", b', "v": "%b"}' % (b"x" * size)) for part, size in ((large, 15 << 20), (larger, 17 << 20))
    ]
    broker.send(topic, [(0, None, value) for value in (small, *padded, last)])
    lake.spool()
    assert lake.convert() == [1, 2, 4]
    counts = "SELECT lines_in, rows_out, rows_quarantined FROM prism_staging_objects"
    assert [sum(found) for found in zip(*lake.rows(counts), strict=True)] == [4, 3, 1]


def test_the_database_refuses_an_overlap_a_gap_and_a_fork(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic()
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(10)))
    lake.spool()
    (pk,) = lake.rows("SELECT prism_topic_id FROM prism_topics")[0]
    for begin, end in ((5, 15), (12, 15), (0, 15)):
        with pytest.raises(Exception, match="prism_offset_ranges"):
            lake.rows(
                "INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind) "
                f"VALUES ({pk}, 0, {begin}, {end}, 'read') RETURNING 1"
            )


def test_workers_share_partitions_and_hand_surplus_over(lake: TopicLake, broker: Broker) -> None:
    topic = broker.new_topic(4)
    lake.world.apply(a_topic_table(topic))
    broker.send(topic, events(range(40), partitions=4))
    first = lake.spool(lake.spooler("a"))
    assert first.figures.partitions == 4
    with _presences(lake, "a", "b"):
        second = lake.spooler("b")
        first._look()
        second._look()
        assert (first.figures.partitions, second.figures.partitions) == (2, 2)
        broker.send(topic, events(range(40, 80), partitions=4))

        def both() -> bool:
            first.turn()
            return lake.is_at_the_end()

        lake.turns(second, both)
    assert lake.convert() == list(range(80))


def test_workers_with_different_tables_leave_no_partition_to_nobody(lake: TopicLake, broker: Broker) -> None:
    names = [broker.new_topic(3), broker.new_topic(1)]
    lake.world.apply(*(a_topic_table(topic, f"log.t{place}") for place, topic in enumerate(names)))
    tables = {str(table.name): table.table_id for table in lake.world.context.choose_tables(None)}
    one = [tables["log.t0"]]
    with _presences(lake, "all"):
        with lake.world.context.database.begin() as connection:
            (lease,) = leases.take(connection, LeaseKind.WORKER, [9], "some", 15.0)
            leases.want_tables(connection, [lease], one)
        some, every = lake.spooler("some", wanted=lambda: one), lake.spooler("all")
        for spooler in (every, some, every, some):
            spooler._look()
        assert (some.figures.partitions, every.figures.partitions) == (2, 2)
        some.stop()
        every.stop()


@contextmanager
def _presences(lake: TopicLake, *workers: str) -> Iterator[None]:
    """The presences of live workers, as their loops keep them."""
    with lake.world.context.database.begin() as connection:
        taken = [
            lease
            for number, name in enumerate(workers)
            for lease in leases.take(connection, LeaseKind.WORKER, [number], name, 15.0)
        ]
    yield
    with lake.world.context.database.begin() as connection:
        leases.release(connection, taken)


def _place(topic: str, offset: int = 0) -> TopicPartition:
    return TopicPartition(topic, 0, offset)
