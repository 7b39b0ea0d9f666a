"""Plays the life of a topic of Kafka, and counts every message: transactions, aborted ones too, and broken values.

`prism local demo --kafka` runs this module after `prism local up --kafka --worker`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from prism_assets.console import complain
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.text import counted
from prism_assets.kafka.connections import connection_of
from prism_assets.metadata.intake import ledgers
from prism_assets.platform import build_context
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings, load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.status import read_topic_status
from prism_assets.stages.status import read_status

if TYPE_CHECKING:
    from confluent_kafka import Producer

TOPIC, TABLE = "demo.messages", "log.messages"
TABLE_FILE = f"""\
schema: log
table: messages
description: Messages of the demo, straight from Kafka
owner: team:demo
streams:
  - {{name: messages, topic: {TOPIC}, flush: {{seconds: 0.5}}}}
partition: {{column: time}}
columns:
  - {{name: time, type: timestamp, source: "@timestamp", required: true}}
  - {{name: message_id, type: string, length: 40}}
  - {{name: user, type: string, length: 40, source: "@key"}}
  - {{name: path, type: string, length: 200}}
  - {{name: part, type: integer, source: "@partition"}}
  - {{name: position, type: bigint, source: "@offset"}}
"""
_PARTITIONS = 3
_TRANSACTIONS, _OF_EACH = 60, 500
_ABORTED, _BROKEN, _TOMBSTONES = 10, 499, 251
"""One transaction of so many is aborted, and one message of so many is no JSON, or has no value."""
_SECONDS = 120.0
_COUNT = (
    f"SELECT count(*), count(DISTINCT message_id), count(DISTINCT (part, position)) FROM {TABLE} "
    "WHERE message_id LIKE '%-{run}'"
)


@dataclass
class Sent:
    """Committed messages by their fate, and aborted ones."""

    rows: int = 0
    broken: int = 0
    tombstones: int = 0
    aborted: int = 0

    @property
    def committed(self) -> int:
        """All messages that a reader of committed messages gets."""
        return self.rows + self.broken + self.tombstones


class TopicPlay:
    """Sends messages while a worker reads them, and compares the counts."""

    def __init__(self, context: StageContext, settings: Settings, out: Console) -> None:
        self._context, self._settings, self._out = context, settings, out
        self._run = f"{time.time_ns():x}"
        self._rng = random.Random(self._run)
        self._number = 0
        self.sent = Sent()

    def run(self) -> bool:
        """Returns whether each committed message is one row, or counted as broken or without a value."""
        connection = connection_of("main", os.environ)
        begun = datetime.now(timezone.utc)
        self._make_topic(dict(connection.settings))
        self._apply()
        started = time.monotonic()
        self._send(dict(connection.settings))
        self._out.print(
            f"  {counted(self.sent.committed, 'message')} in {_TRANSACTIONS} transactions, "
            f"{self.sent.aborted:,} more in aborted ones, sent in {time.monotonic() - started:.1f} s"
        )
        self._await_end(begun)
        self._out.print(f"  every message was read and converted {time.monotonic() - started:.1f} s after the first")
        return self._verdict(begun)

    def _make_topic(self, settings: dict[str, Any]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({**settings, "log_level": 0})
        try:
            admin.create_topics([NewTopic(TOPIC, _PARTITIONS)])[TOPIC].result(30)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise WrongUse(f"the broker makes no topic: {error.args[0].str()}; `prism local up --kafka`") from None

    def _apply(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "messages.yaml").write_text(TABLE_FILE)
            for line in run_apply(self._context, Path(folder), datetime.now(timezone.utc)).lines:
                self._out.print(f"  {line}")

    def _send(self, settings: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({**settings, "transactional.id": f"demo-{self._run}", "linger.ms": 20, "log_level": 0})
        producer.init_transactions(30)
        for number in range(_TRANSACTIONS):
            self._send_transaction(producer, is_aborted=number % _ABORTED == _ABORTED - 1)

    def _send_transaction(self, producer: Producer, *, is_aborted: bool) -> None:
        producer.begin_transaction()
        sent = Sent()
        for key, value in self._messages(sent):
            producer.produce(TOPIC, key=key, value=value)
            producer.poll(0)
        if is_aborted:
            producer.flush(30)
            producer.abort_transaction(30)
            self.sent.aborted += sent.committed
            return
        producer.commit_transaction(30)
        self.sent.rows += sent.rows
        self.sent.broken += sent.broken
        self.sent.tombstones += sent.tombstones

    def _messages(self, sent: Sent) -> Iterator[tuple[str, bytes | None]]:
        for _ in range(_OF_EACH):
            self._number += 1
            key = f"user-{self._rng.randrange(200)}"
            if self._number % _TOMBSTONES == 0:
                sent.tombstones += 1
                yield key, None
            elif self._number % _BROKEN == 0:
                sent.broken += 1
                yield key, b'{"message_id": '
            else:
                sent.rows += 1
                message = {"message_id": f"{self._number:012d}-{self._run}", "path": f"/{self._rng.randrange(40)}"}
                yield key, json.dumps(message).encode()

    def _await_end(self, begun: datetime) -> None:
        """Waits until the worker stands at the end of each partition, and has converted all objects.

        The worker looks at the ends every few seconds. So the ledger must have all messages, too.
        """
        deadline = time.monotonic() + _SECONDS
        while not (self._is_read() and self._is_converted() and self._has_all(begun)):
            if time.monotonic() > deadline:
                raise WrongUse(
                    f"no worker read all messages within {_SECONDS:.0f} s: `prism local up --kafka --worker`"
                )
            time.sleep(0.2)

    def _is_read(self) -> bool:
        (topic,) = read_topic_status(self._context, [TABLE])
        return len(topic.partitions) == _PARTITIONS and all(item.lag_offsets == 0 for item in topic.partitions)

    def _is_converted(self) -> bool:
        (table,) = read_status(self._context, now=datetime.now(timezone.utc), names=[TABLE])
        return not (table.pending or table.claimed) and all(item.state != "new" for item in table.partitions)

    def _balances(self, begun: datetime) -> list[ledgers.Balance]:
        """Returns the ledger of what was converted since then, none before the first message."""
        (table,) = self._context.choose_tables([TABLE])
        with self._context.database.begin() as connection:
            return ledgers.balances(connection, [table.table_id], begun)

    def _has_all(self, begun: datetime) -> bool:
        return sum(item.lines_in for item in self._balances(begun)) >= self.sent.committed

    def _verdict(self, begun: datetime) -> bool:
        (balance,) = self._balances(begun)
        rows, ids, offsets = run_query(LakeReader(self._settings), _COUNT.format(run=self._run)).rows[0]
        sent = self.sent
        found = Sent(rows=rows, broken=balance.quarantined, tombstones=balance.filtered, aborted=sent.aborted)
        self._out.print(
            f"  {TABLE} shows {rows:,} of {sent.rows:,} messages, each once; {balance.quarantined} of {sent.broken} "
            f"are quarantined, {balance.filtered} of {sent.tombstones} have no value"
        )
        is_whole = found == sent and rows == ids == offsets and balance.lines_in == sent.committed
        verdict = (
            "[green]every message is there exactly once[/]" if is_whole else "[red]messages are missing or doubled[/]"
        )
        self._out.print(f"  {verdict}")
        return is_whole


def main() -> int:
    """Plays on the local stack. Returns exit status 1 if a single message is missing or doubled."""
    out = Console(highlight=False, width=140)
    try:
        settings = load_settings()
        out.print("\n[bold]A topic of Kafka: a producer sends, and a worker reads[/bold]")
        return 0 if TopicPlay(build_context(settings), settings, out).run() else 1
    except PrismError as error:
        complain(str(error))
        return 2 if isinstance(error, WrongUse) else 1


if __name__ == "__main__":
    sys.exit(main())
