"""Connections to clusters, from the environment: `PRISM_KAFKA_MAIN_SECURITY_PROTOCOL` is `security.protocol` of the
cluster `main`. Definitions of tables hold no address and no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prism_assets.domain.errors import SettingsError
from prism_assets.domain.names import did_you_mean
from prism_assets.domain.streams.topic import CLUSTER
from prism_assets.secret_references import secret_at

_PREFIX = "PRISM_KAFKA_"
_SERVERS = "_BOOTSTRAP_SERVERS"
SECRETS_OF_CLUSTERS = ("_PASSWORD", "_SECRET", "_KEY_PEM", "_SASL_OAUTHBEARER_CONFIG")
"""Ends of names of variables that hold a secret, or the reference to one."""

READING: Mapping[str, str | int | bool] = {
    "group.id": "prism",  # librdkafka wants a name; no group ever exists
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 64 << 10,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
"""The settings of every reader. The exactness of offsets depends on them, so the environment may not change them."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The settings of one cluster, by librdkafka's names. They may contain passwords."""

    name: str
    settings: Mapping[str, str] = field(repr=False)


def connections(environment: Mapping[str, str]) -> dict[str, Connection]:
    """Returns the connections by cluster. Raises SettingsError with all wrong variables, without their values."""
    given = {name.removeprefix(_PREFIX): value for name, value in environment.items() if name.startswith(_PREFIX)}
    clusters = {name.removesuffix(_SERVERS) for name, value in given.items() if name.endswith(_SERVERS) and value}
    found: dict[str, dict[str, str]] = {cluster: {} for cluster in clusters}
    problems = [
        f"  {_PREFIX}{cluster}{_SERVERS}: {cluster.lower()} is no name of a cluster: it must begin with a letter and "
        "hold only letters, digits and _, at most 32"
        for cluster in sorted(clusters)
        if not CLUSTER.fullmatch(cluster.lower())
    ]
    for name, value in sorted(given.items()):
        owners = [cluster for cluster in clusters if name.startswith(f"{cluster}_")]
        if not owners:
            problems.append(f"  {_PREFIX}{name}: no cluster has this name; set {_PREFIX}<CLUSTER>{_SERVERS} first")
            continue
        cluster = max(owners, key=len)
        setting = name.removeprefix(f"{cluster}_").lower().replace("_", ".")
        if setting in READING:
            problems.append(f"  {_PREFIX}{name}: prism sets {setting} itself; remove the variable")
        try:
            found[cluster][setting] = secret_at(value) if name.endswith(SECRETS_OF_CLUSTERS) else value
        except SettingsError as error:
            problems.append(f"  {_PREFIX}{name}: {error}")
    if problems:
        raise SettingsError("\n".join(["settings of Kafka are wrong:", *problems]))
    return {cluster.lower(): Connection(name=cluster.lower(), settings=held) for cluster, held in found.items()}


def connection_of(cluster: str, environment: Mapping[str, str]) -> Connection:
    """Returns the connection of one cluster. Raises SettingsError if the environment has none."""
    found = connections(environment)
    if cluster not in found:
        raise SettingsError(
            f"there is no connection to the Kafka cluster {cluster}{did_you_mean(cluster, found)}: set "
            f"{_PREFIX}{cluster.upper()}{_SERVERS} for the worker, such as broker-1:9092,broker-2:9092"
        )
    return found[cluster]
