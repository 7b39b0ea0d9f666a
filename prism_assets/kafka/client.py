"""The library of the client, imported on first use, and its errors as errors of the error tree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from prism_assets.domain.errors import AccessDenied, KafkaUnavailable, MissingTopic, SettingsError, TerminalError
from prism_assets.transactions import refuse_inside_transaction

LOG = logging.getLogger("prism_assets.kafka.client")
LOG.setLevel(logging.CRITICAL)
"""librdkafka repeats each failed connection. The worker reports faults itself."""

_DENIED = (
    "_AUTHENTICATION",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
)
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")


def library() -> ModuleType:
    """Returns the client's library. Raises SettingsError where it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise SettingsError(
            "streams of topics need the client of Kafka: install prism-assets[kafka] where the worker runs"
        ) from None
    return confluent_kafka


@contextmanager
def translated(cluster: str, what: str) -> Iterator[None]:
    """Raises errors of the client as errors of the error tree. Refuses calls inside a transaction."""
    refuse_inside_transaction(f"Kafka cluster {cluster}")
    errors = library()
    try:
        yield
    except errors.KafkaException as error:
        raise error_of(error.args[0], cluster, what) from None
    except (TimeoutError, OSError) as error:
        raise KafkaUnavailable(
            f"the Kafka cluster {cluster} did not answer ({what}): {error or type(error).__name__}"
        ) from None
    except (ValueError, TypeError) as error:
        raise SettingsError(f"the settings of the Kafka cluster {cluster} are refused: {error}") from None


def error_of(error: Any, cluster: str, what: str) -> TerminalError | KafkaUnavailable:
    """Returns the error for a KafkaError."""
    name = error.name()
    if name in _DENIED:
        return AccessDenied(
            f"the Kafka cluster {cluster} refuses the login or the right ({what}): {_sentence(error)}; check "
            f"PRISM_KAFKA_{cluster.upper()}_SASL_… and the ACLs: DESCRIBE and READ on the topic"
        )
    if name in _MISSING:
        return MissingTopic(f"the Kafka cluster {cluster} has no such topic or partition ({what})")
    if name in ("_INVALID_ARG", "_NOT_IMPLEMENTED", "_CONFLICT", "INVALID_CONFIG"):
        return SettingsError(f"the settings of the Kafka cluster {cluster} are refused ({what}): {_sentence(error)}")
    return KafkaUnavailable(f"the Kafka cluster {cluster} did not answer ({what}): {_sentence(error)}")


def is_denied(error: Any) -> bool:
    """Whether a KafkaError is about a login or a right."""
    return error.name() in _DENIED


def is_topic_denied(error: Any) -> bool:
    """Whether a KafkaError is about the right to one topic. Others may be readable."""
    return bool(error.name() == "TOPIC_AUTHORIZATION_FAILED")


def is_about_missing(error: Any) -> bool:
    """Whether a KafkaError says that a topic was deleted or recreated."""
    return error.name() in (*_MISSING, "INCONSISTENT_TOPIC_ID")


def _sentence(error: Any) -> str:
    return " ".join(str(error.str()).split())[:300]
