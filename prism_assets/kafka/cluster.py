"""One cluster: the identity of its topics, and their offsets. Every call has a time limit."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.errors import KafkaUnavailable, PrismError
from prism_assets.domain.streams.topic import EARLIEST, LATEST, time_of_start
from prism_assets.kafka import client
from prism_assets.kafka.connections import Connection, connection_of
from prism_assets.kafka.reader import Place, TopicReader

_SECONDS = 5.0
"""The time limit of one call. A worker renews its leases between calls."""


@dataclass(frozen=True, kw_only=True)
class TopicIdentity:
    """A topic as its brokers know it. A recreated topic has another id."""

    cluster_id: str
    topic_id: str
    partitions: int

    @property
    def ids(self) -> tuple[str, str]:
        """The ids of the cluster and of the topic. A topic is the same one if both are equal."""
        return self.cluster_id, self.topic_id


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """The first offset that a partition still has, and its last stable one: every transaction before it has ended."""

    low: int
    stable: int


class KafkaCluster:
    """A cluster. Opens its connection for questions on first use. Readers have their own."""

    def __init__(self, connection: Connection) -> None:
        self.name = connection.name
        self._connection = connection
        self._admin: Any = None
        self._denied: Any = None
        """The refusal of a login, as the client reported it. Calls themselves only time out then."""

    def reader(self) -> TopicReader:
        """Returns a new reader without partitions."""
        return TopicReader(self._connection)

    @contextmanager
    def _asking(self, what: str) -> Iterator[Any]:
        """Yields the admin client. A timeout becomes AccessDenied if the brokers refused the login meanwhile."""
        try:
            with client.translated(self.name, what):
                self._denied = None
                yield self._admin_client()
        except KafkaUnavailable:
            self._admin.poll(0)
            if self._denied is not None:
                raise client.error_of(self._denied, self.name, what) from None
            raise

    def _note(self, error: Any) -> None:
        """Keeps a refused login. The client calls it while it is polled."""
        if client.is_denied(error):
            self._denied = error

    def identities(
        self, topics: Collection[str], denied: dict[str, PrismError] | None = None
    ) -> dict[str, TopicIdentity | None]:
        """Returns the identities of topics, None for one that does not exist.

        A topic without the right to see it raises AccessDenied, or takes its error into `denied`.
        """
        found: dict[str, TopicIdentity | None] = {}
        with self._asking("describing topics") as admin:
            library = client.library()
            cluster_id = admin.describe_cluster(request_timeout=_SECONDS).result(_SECONDS + 1).cluster_id
            answers = admin.describe_topics(library.TopicCollection(sorted(topics)), request_timeout=_SECONDS)
            for topic, answer in answers.items():
                try:
                    described = answer.result(_SECONDS + 1)
                except library.KafkaException as error:
                    if denied is not None and client.is_topic_denied(error.args[0]):
                        denied[topic] = client.error_of(error.args[0], self.name, f"describing the topic {topic}")
                    elif not client.is_about_missing(error.args[0]):
                        raise
                    found[topic] = None
                    continue
                found[topic] = TopicIdentity(
                    cluster_id=cluster_id, topic_id=str(described.topic_id), partitions=len(described.partitions)
                )
        return found

    def offsets(self, places: Collection[Place]) -> dict[Place, Offsets]:
        """Returns the bounds of partitions. Partitions without an answer are missing."""
        spec = client.library().admin.OffsetSpec
        low = self._list_offsets(places, spec.earliest())
        stable = self.stable_offsets(places)
        return {place: Offsets(low=low[place], stable=stable[place]) for place in low.keys() & stable.keys()}

    def stable_offsets(self, places: Collection[Place]) -> dict[Place, int]:
        """Returns the last stable offsets of partitions: lag is the distance to them."""
        return self._list_offsets(places, client.library().admin.OffsetSpec.latest())

    def first_offsets(self, places: Collection[Place], start: str) -> dict[Place, int]:
        """Returns the first offset to read in each partition, by the `start` of a table file.

        A start time after the last message means the end.
        """
        spec = client.library().admin.OffsetSpec
        if start == EARLIEST:
            return self._list_offsets(places, spec.earliest())
        ends = self.stable_offsets(places)
        if start == LATEST:
            return ends
        found = self._list_offsets(places, spec.for_timestamp(int(time_of_start(start).timestamp() * 1000)))
        return {place: found[place] if found[place] >= 0 else ends[place] for place in found.keys() & ends.keys()}

    def _list_offsets(self, places: Collection[Place], spec: Any) -> dict[Place, int]:
        """Returns one kind of offset. `latest` is the last stable offset, because only committed messages are read."""
        if not places:
            return {}
        with self._asking("asking for offsets") as admin:
            library = client.library()
            asked = {library.TopicPartition(place.topic, place.partition): spec for place in places}
            committed = library.IsolationLevel.READ_COMMITTED
            answers = admin.list_offsets(asked, isolation_level=committed, request_timeout=_SECONDS)
            found = dict(self._answered(answers))
            if not found:
                raise KafkaUnavailable(f"the Kafka cluster {self.name} told no offset of {len(answers)} partitions")
            return found

    def _answered(self, answers: Mapping[Any, Any]) -> Iterable[tuple[Place, int]]:
        """Yields the offsets that brokers told. A partition without a leader has none, and hides those of no other."""
        exception = client.library().KafkaException
        for partition, answer in answers.items():
            try:
                offset = answer.result(_SECONDS + 1).offset
            except exception as error:
                if client.is_denied(error.args[0]):
                    raise
                continue
            yield Place(partition.topic, partition.partition), offset

    def _admin_client(self) -> Any:
        if self._admin is None:
            settings = {
                **self._connection.settings,
                "socket.timeout.ms": int(_SECONDS * 1000),
                "log_level": 0,
                "error_cb": self._note,
            }
            self._admin = client.library().admin.AdminClient(settings, logger=client.LOG)
        return self._admin


class KafkaClusters:
    """All clusters of the environment, opened on first use."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._open: dict[str, KafkaCluster] = {}

    def of(self, name: str) -> KafkaCluster:
        """Returns a cluster. Raises SettingsError if the environment has no connection to it."""
        if name not in self._open:
            self._open[name] = KafkaCluster(connection_of(name, self._environment))
        return self._open[name]
