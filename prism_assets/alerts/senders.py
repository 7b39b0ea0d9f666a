"""Senders of alerts: a log, a webhook, an SNS topic. Each gives up after seconds and never reveals its address."""

from __future__ import annotations

import dataclasses
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from prism_assets.alerts.message import Alert
from prism_assets.aws_clients import Patience, aws_client
from prism_assets.domain.errors import AlertNotSent

_TRIES = 2
_PAUSE_SECONDS = 0.5
_TIMEOUT_SECONDS = 4.0
_SUBJECT_LENGTH = 100


class Sender(Protocol):
    """A way to deliver alerts. `name` identifies it without an address."""

    name: str

    def send(self, alert: Alert) -> None:
        """Delivers one alert. Raises AlertNotSent if this fails within seconds."""
        ...


class LogSender:
    """Writes alerts into a log."""

    name = "log"

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write = write

    def send(self, alert: Alert) -> None:
        """Writes the text as one entry."""
        self._write(alert.text)


class WebhookSender:
    """Posts alerts as JSON. Chats show `text`; `failed` and `runs` are for programs."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        self._url = url

    def send(self, alert: Alert) -> None:
        """Tries twice if the receiver is down or overloaded. Follows no redirect."""
        document = {
            "text": alert.text,
            "failed": alert.failed,
            "runs": [dataclasses.asdict(run) for run in alert.runs],
        }
        body = json.dumps(document).encode()
        for left in reversed(range(_TRIES)):
            reason, worth_another = self._post(body)
            if reason is None:
                return
            if not left or not worth_another:
                raise AlertNotSent(f"the webhook of PRISM_ALERT did not take an alert: {reason}")
            time.sleep(_PAUSE_SECONDS)

    def _post(self, body: bytes) -> tuple[str | None, bool]:
        """Posts once. Returns the reason of a failure, and whether a retry may help. Errors of urllib may quote the
        address, so only their type is named.
        """
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_SECONDS):
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            return f"it answered {error.code}", error.code == 429 or error.code >= 500
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"it cannot be reached ({type(error).__name__})", True


class SnsSender:
    """Publishes alerts to an SNS topic."""

    name = "sns"

    def __init__(self, topic: str, endpoint: str | None = None) -> None:
        self._topic = topic
        self._endpoint = endpoint

    def send(self, alert: Alert) -> None:
        """Publishes once. boto3 retries by itself."""
        patience = Patience(_TRIES, connect_seconds=_TIMEOUT_SECONDS, read_seconds=_TIMEOUT_SECONDS)
        try:
            client = aws_client("sns", self._endpoint, self._topic.split(":")[3], patience)
            client.publish(TopicArn=self._topic, Subject=alert.subject[:_SUBJECT_LENGTH], Message=alert.text)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise AlertNotSent(f"SNS refused an alert: {code}; check the topic in PRISM_ALERT and its policy") from None
        except BotoCoreError as error:
            raise AlertNotSent(f"SNS cannot be reached ({type(error).__name__})") from None


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because the address and the alert are secret."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_RefuseRedirects)


def make_sender(alert: str, write: Callable[[str], Any], sns_endpoint: str | None = None) -> Sender:
    """Returns the sender for PRISM_ALERT: `log`, `webhook:<url>` or `sns:<topic-arn>`."""
    kind, _, target = alert.partition(":")
    if kind == "webhook":
        return WebhookSender(target)
    return SnsSender(target, sns_endpoint) if kind == "sns" else LogSender(write)
