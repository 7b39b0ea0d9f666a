"""Kills workers, stands them still, and ends brokers and PostgreSQL, while a producer commits and aborts transactions.

`spool` and `convert` run in forked processes (`crash/fork_server.py`). A null control reads with a consumer group.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException

from prism_assets.domain.errors import PrismError
from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.kafka.spooler import Spooler
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.crash.fork_server import Child, ForkServer
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.kafka.broker import Broker, events, until
from prism_assets_tests.kafka.lake import TopicLake

LEASE_SECONDS = 2.0
POINTS = ("spool.after_put", "spool.in_commit", "spool.after_commit")
PARTITIONS = 3
_STAND_SECONDS = 4.0


def spool(name: str) -> None:
    """A worker that reads topics until it is killed. Its presence is a lease, as that of a live worker."""
    context = build_context(load_settings())
    while True:
        spooler = Spooler(
            context,
            context.kafka.of("main"),
            name,
            clock=lambda: datetime.now(timezone.utc),
            lease_seconds=LEASE_SECONDS,
        )
        try:
            with context.database.begin() as connection:
                number = random.getrandbits(60)
                held = leases.take(connection, LeaseKind.WORKER, [number], name, LEASE_SECONDS)
            while True:
                spooler.turn()
                with context.database.begin() as connection:
                    leases.renew_held(connection, held)
        except PrismError as error:
            print(f"{name}: {error}", flush=True)
            time.sleep(0.2)


def convert() -> None:
    """Makes rows of spool objects until it is killed."""
    context = build_context(load_settings())
    while True:
        now = datetime.now(timezone.utc)
        try:
            run_stream(context, now=now)
            run_catalog(context, now=now)
            run_iceberg(context, now=now)
        except PrismError as error:
            print(f"convert: {error}", flush=True)
        time.sleep(0.1)


def naive(servers: str, topic: str, group: str, folder: str, *, auto: bool) -> None:
    """The null control: offsets in a consumer group, beside the data. Reads until it is killed."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": auto,
        "auto.commit.interval.ms": 200,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": 6_000,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    number = 0
    while True:
        found = [message for message in consumer.consume(500, 0.2) if not message.error()]
        if not found:
            continue
        time.sleep(0.05)  # the PUT
        number += 1
        part = Path(folder) / f"{os.getpid()}-{number}"
        ids = [json.loads(message.value() or b"")["id"] for message in found]
        part.with_suffix(".new").write_text(json.dumps(ids))
        part.with_suffix(".new").rename(part.with_suffix(".json"))
        if not auto:
            time.sleep(0.1)
            consumer.commit(asynchronous=False)


@dataclass
class Writer:
    """A producer of transactions in a thread. `committed` has the ids that a reader may see, each once."""

    broker: Broker
    topic: str
    seed: int
    pause: float
    """Seconds between two transactions."""
    committed: list[int] = field(default_factory=list)
    aborted: int = 0

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Ends the last transaction."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        rng, next_id = random.Random(self.seed), 0
        producer = self._again(lambda: self._opened())
        while not self._stopping.is_set():
            numbers = range(next_id, next_id + rng.choice((1, 10, 100, 300)))
            next_id = numbers.stop
            try:
                producer.begin_transaction()
                for partition, key, value in events(numbers, partitions=PARTITIONS):
                    producer.produce(self.topic, value, key=key, partition=partition)
                if rng.random() < 0.2:
                    producer.flush(30)
                    producer.abort_transaction(30)
                    self.aborted += 1
                else:
                    self._again(lambda: producer.commit_transaction(30))
                    self.committed += numbers
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._again(lambda: producer.abort_transaction(30))
            time.sleep(self.pause)

    def _opened(self) -> Any:
        made = self.broker.producer(**{"transactional.id": self.topic, "transaction.timeout.ms": 60_000})
        made.init_transactions(30)
        return made

    def _again(self, call: Any) -> Any:
        """Repeats a call while the broker is away. A commit without an answer is repeated until it has one."""
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                time.sleep(0.1)


@dataclass
class Strikes:
    """The strikes at one lake."""

    lake: TopicLake
    server: ForkServer
    folder: Path
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._number = 0
        servers = self.lake.broker.servers
        self._environment = environment(self.lake.world, PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS=servers)

    def run(self, count: int, *, servers: int) -> None:
        """Kills `count` processes, and ends the broker and PostgreSQL `servers` times meanwhile."""
        spoolers = [self._spooler(), self._spooler()]
        converter = self._start("convert", {})
        ends = sorted(self._rng.sample(range(1, count), servers))
        while sum(self.counts.values()) < count:
            time.sleep(self._rng.uniform(0.3, 1.2))
            place = self._rng.randrange(len(spoolers))
            self._strike(spoolers[place])
            spoolers[place] = self._spooler()
            if self._rng.random() < 0.2:
                converter.kill()
                converter.wait()
                self.counts["convert"] += 1
                converter = self._start("convert", {})
            if ends and sum(self.counts.values()) >= ends[0]:
                self._end_broker(len(ends))
                self._end_postgres()
                ends.pop(0)
        for child in (*spoolers, converter):
            child.kill(signal.SIGCONT)
            child.kill()
            child.wait()

    def _strike(self, child: Child) -> None:
        """Kills a worker, waits for its death at a failpoint, or stands it still beyond its lease and kills it then."""
        if child.ended.wait(0.0):
            self.counts["failpoint"] += 1
        elif self._rng.random() < 0.1:
            child.kill(signal.SIGSTOP)
            time.sleep(_STAND_SECONDS)
            child.kill(signal.SIGCONT)
            time.sleep(0.5)
            child.kill()
            self.counts["stood"] += 1
        else:
            child.kill()
            self.counts["random"] += 1
        child.wait()

    def _end_broker(self, left: int) -> None:
        if left % 2:
            self.lake.broker.kill()
        else:
            self.lake.broker.stop()
        self.counts["broker"] += 1
        time.sleep(1.0)
        self.lake.broker.start()

    def _end_postgres(self) -> None:
        """Kills a session with SIGKILL: the server ends all others, too, and recovers as after its own death."""
        database = self.lake.world.context.database
        with suppress(PrismError), database.begin() as connection:
            os.kill(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one(), signal.SIGKILL)

        def answers() -> bool:
            with suppress(PrismError), database.begin() as connection:
                return bool(connection.exec_driver_sql("SELECT true").scalar_one())
            return False

        until(answers)
        self.counts["postgres"] += 1

    def _spooler(self) -> Child:
        self._number += 1
        point = self._rng.choice((*POINTS, ""))
        chosen = {"PRISM_FAILPOINTS": f"{point}={self._rng.randrange(3)}*off->1*kill9"} if point else {}
        return self._start("spool", chosen, name=f"worker-{self._number}")

    def _start(self, function: str, more: dict[str, str], **arguments: Any) -> Child:
        output = self.folder / f"{function}.log"
        return self.server.run(f"{__name__}:{function}", arguments, {**self._environment, **more}, output)


def of_group(
    server: ForkServer, broker: Broker, topic: str, folder: Path, kills: int, *, auto: bool, expected: Sequence[int]
) -> list[int]:
    """Kills consumers of a group, and returns the ids in the files that they left."""
    folder.mkdir()
    arguments = {
        "servers": broker.servers,
        "topic": topic,
        "group": f"{topic}-{auto}",
        "folder": str(folder),
        "auto": auto,
    }
    rng = random.Random(5)

    def start() -> Child:
        return server.run(f"{__name__}:naive", arguments, {}, folder / "naive.log")

    def ids() -> list[int]:
        return [number for part in folder.glob("*.json") for number in json.loads(part.read_text())]

    for _ in range(kills):
        child = start()
        _await_more(ids)
        time.sleep(rng.uniform(0.0, 0.3))
        child.kill()
        child.wait()
    child = start()
    until(lambda: set(ids()) >= set(expected), 120)
    time.sleep(1.0)
    child.kill()
    child.wait()
    return ids()


def _await_more(ids: Callable[[], list[int]]) -> None:
    before = len(ids())
    until(lambda: len(ids()) > before, 60)
