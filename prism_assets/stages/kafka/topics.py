"""The topics that commands show and change, and their identity by the brokers."""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.errors import MissingTopic, WrongUse
from prism_assets.kafka.cluster import KafkaCluster, TopicIdentity
from prism_assets.metadata.kafka.lag import TopicLag, load_lags
from prism_assets.stages.context import StageContext


def load_topics(context: StageContext, names: Sequence[str] | None) -> list[tuple[str, TopicLag]]:
    """Returns the topics of the named tables, or of all, each with the name of its table."""
    tables = {table.table_id: str(table.name) for table in context.choose_logs(names)}
    with context.database.begin() as connection:
        found = load_lags(connection, tables)
    return [(tables[topic.table_id], topic) for topic in found]


def choose_topic(context: StageContext, table: str, name: str | None) -> TopicLag:
    """Returns the registered topic of a table, by name where the table reads several. Raises WrongUse otherwise."""
    found = [topic for _, topic in load_topics(context, [table])]
    if not found:
        raise WrongUse(f"{table} has no stream in use that reads a topic. Nothing was done")
    chosen = [topic for topic in found if name is None or name in (topic.topic, topic.url)]
    if len(chosen) != 1:
        known = ", ".join(topic.url for topic in found)
        what = f"reads several topics: name one with --topic ({known})" if chosen else f"reads {known}, and not {name}"
        raise WrongUse(f"{table} {what}. Nothing was done")
    (topic,) = chosen
    if topic.topic_pk is None:
        raise WrongUse(f"no worker has begun to read {topic.url}, so its start is still that of the table file")
    return topic


def ask_identity(cluster: KafkaCluster, topic: TopicLag) -> TopicIdentity:
    """Returns the identity of the topic that the brokers have now. Raises MissingTopic if there is none."""
    identity = cluster.identities({topic.topic}).get(topic.topic)
    if identity is None:
        raise MissingTopic(f"the brokers have no topic {topic.topic}: create it first. Nothing was done")
    return identity


def is_same(topic: TopicLag, identity: TopicIdentity) -> bool:
    """Whether the brokers' topic is the registered one. A recreated topic has the same name and another id."""
    return (topic.cluster_id, topic.topic_id) == identity.ids
