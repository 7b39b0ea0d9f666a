"""Topics of Apache Kafka that feed streams, and the place of their spool objects.

A worker copies the messages of a topic to spool objects in the folder of the table. A spool object is a staging object
of the stream: all later steps treat it as an object that a listing found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from prism_assets.domain.text import counted

BUCKET_PREFIX = "kafka:"
"""In the database, a stream of a topic has this prefix and its cluster as bucket. No bucket of S3 has a colon."""
URL_PREFIX = "kafka://"
"""The beginning of the URL of a topic, as `s3://` of the URL of a prefix."""
SPOOL_FOLDER = "spool"
"""The folder of spool objects in the folder of a table. No discovery lists it."""
EARLIEST, LATEST = "earliest", "latest"
DEFAULT_CLUSTER = "main"
SPOOL_DAYS = 30
FLUSH_SECONDS, FLUSH_BYTES = 1.0, 64 << 20
CLUSTER = re.compile(r"[a-z][a-z0-9_]{0,31}")
TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""Names that Kafka accepts."""
_TABLE_FOLDER = re.compile(r"(?:^|/)[0-9a-f]{4}\.[^/]+$")
SPOOL_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
SPOOL_NAME = r"[A-Za-z0-9_+=-]+-(?P<partition>[0-9]{5,10})-(?P<offset>[0-9]{19})-[0-9a-f]{16}\.parquet"
"""The name of a spool object: the topic's id, partition and offset of the first message, and a hash."""
_BELOW_TOPIC = re.compile(f"dt={SPOOL_DAY}/{SPOOL_NAME}")

Tombstones = Literal["filter", "row", "reject"]
TOMBSTONES: tuple[Tombstones, ...] = ("filter", "row", "reject")


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic, and the way a stream reads it."""

    cluster: str
    """The name of the connection: `main` reads the settings `PRISM_KAFKA_MAIN_…`."""
    name: str
    start: str = EARLIEST
    """The first offset to read: `earliest`, `latest`, or the first message from a time on. Resolved once."""
    tombstones: Tombstones = "filter"
    """The treatment of messages without a value: counted as filtered, a row of nulls, or quarantined."""
    spool_days: int = SPOOL_DAYS
    """Days that a converted spool object is kept for rebuilds and replays."""
    flush_seconds: float = FLUSH_SECONDS
    """The longest time that a message waits in the memory of a worker."""
    flush_bytes: int = FLUSH_BYTES
    """The bytes of messages in memory that end the wait."""

    @property
    def bucket(self) -> str:
        """The bucket of the stream in the database, such as `kafka:main`."""
        return f"{BUCKET_PREFIX}{self.cluster}"

    @property
    def key_prefix(self) -> str:
        """The prefix of the stream in the database, such as `app.events/`."""
        return f"{self.name}/"

    @property
    def spool_folder(self) -> str:
        """The folder of the spool objects below the folder of the table."""
        return f"{SPOOL_FOLDER}/{self.cluster}/{self.name}/"

    def holds(self, key: str) -> bool:
        """Whether a key is that of a spool object of the topic, in the folder of any table of any lake."""
        folder, found, name = key.rpartition(f"/{self.spool_folder}")
        return bool(found) and _TABLE_FOLDER.search(folder) is not None and _BELOW_TOPIC.fullmatch(name) is not None

    def describe(self) -> str:
        """Returns the options in a sentence for people."""
        return (
            f"from {self.start} on; tombstones: {self.tombstones}; spool kept for {counted(self.spool_days, 'day')}; "
            f"flushed after {self.flush_seconds:g} s or {self.flush_bytes:,} bytes"
        )

    def to_document(self) -> dict[str, Any]:
        """Returns the topic for stored definitions."""
        return dict(vars(self))


def time_of_start(start: str) -> datetime:
    """Returns the time of a start other than earliest and latest. Raises ValueError for text that is no time."""
    time = datetime.fromisoformat(f"{start.removesuffix('Z')}+00:00" if start.endswith("Z") else start)
    if time.tzinfo is None:
        raise ValueError("a time needs its offset from UTC")
    return time


def topic_url(cluster: str, name: str) -> str:
    """Returns `kafka://cluster/topic`."""
    return f"{URL_PREFIX}{cluster}/{name}"


def is_topic(bucket: str) -> bool:
    """Whether a stream with this bucket reads a topic."""
    return bucket.startswith(BUCKET_PREFIX)


def topic_at(bucket: str, key_prefix: str) -> Topic | None:
    """Returns the topic at the place of a stream, without the options of its table file. None for a prefix in S3."""
    return Topic(cluster=bucket.removeprefix(BUCKET_PREFIX), name=key_prefix.rstrip("/")) if is_topic(bucket) else None
