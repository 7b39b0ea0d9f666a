"""AWS SQS through boto3. Calls carry ten messages, partial failures are read from answers, errors are of the error
tree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from prism_assets.aws_clients import Patience, aws_client
from prism_assets.domain.errors import (
    AccessDenied,
    MissingQueue,
    PrismError,
    QueueUnavailable,
    TerminalError,
)
from prism_assets.domain.text import counted
from prism_assets.transactions import refuse_inside_transaction
from prism_assets.unreachable import silence_of, without_credentials

BATCH = 10
"""The maximum number of messages in a call of SQS."""
LONGEST_WAIT_SECONDS = 20

_ANSWER_SECONDS = 5
_HOST = re.compile(r"(?:sqs\.(?P<region>[a-z0-9-]+)|(?P<old_region>[a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?")
_MISSING = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"}
_THROTTLED = {
    "InternalError",
    "InternalFailure",
    "KMS.ThrottlingException",
    "KmsThrottled",
    "OverLimit",
    "RequestThrottled",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "KMS.AccessDeniedException",
    "KmsAccessDenied",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}


@dataclass(frozen=True, kw_only=True)
class Message:
    """A received message. Other receivers do not see it until its visibility timeout ends."""

    message_id: str
    receipt: str
    body: str


class SqsQueue:
    """One queue by its URL. The first call opens the connection. `wait_seconds` limits the long poll of one call."""

    def __init__(self, url: str, endpoint: str | None, region: str, *, wait_seconds: float = 0) -> None:
        self.url = url
        self.wait_seconds = min(LONGEST_WAIT_SECONDS, wait_seconds)
        self._endpoint = endpoint
        self._region = region_of(url) or region

    def __repr__(self) -> str:
        return f"SqsQueue({self.name})"

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def _client(self) -> Any:
        return sqs_client(self._endpoint, self._region, self.wait_seconds)

    def receive(self, *, wait_seconds: float = 0) -> list[Message]:
        """Receives up to ten messages.

        Without waiting, SQS asks only some of its servers, so an empty answer proves nothing.
        """
        wait = max(0, math.floor(min(self.wait_seconds, wait_seconds)))
        with self._translated():
            answer = self._client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait)
        return [
            Message(message_id=item["MessageId"], receipt=item["ReceiptHandle"], body=item["Body"])
            for item in answer.get("Messages", [])
        ]

    def delete(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Deletes messages. Returns a sentence for each batch with undeleted messages.

        The queue delivers these again.
        """
        problems: list[str] = []
        for start in range(0, len(messages), BATCH):
            try:
                problems += self._delete(messages[start : start + BATCH])
            except PrismError as error:
                return (
                    *problems,
                    f"{counted(len(messages) - start, 'message was', 'messages were')} not deleted, to come again: "
                    f"{error}",
                )
        return tuple(problems)

    def _delete(self, messages: Sequence[Message]) -> list[str]:
        entries = [{"Id": str(number), "ReceiptHandle": item.receipt} for number, item in enumerate(messages)]
        with self._translated():
            answer = self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)
        failed = answer.get("Failed", [])
        codes = ", ".join(sorted({str(item.get("Code")) for item in failed}))
        return [f"queue {self.name} kept {counted(len(failed), 'message')}, to come again: {codes}"] if failed else []

    @contextmanager
    def _translated(self) -> Iterator[None]:
        refuse_inside_transaction("SQS")
        try:
            yield
        except ClientError as error:
            raise self._named(error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise AccessDenied(without_credentials(f"queue {self.name}")) from error
        except ParamValidationError as error:
            raise TerminalError(f"queue {self.name} does not take this: {' '.join(str(error).split())}") from error
        except BotoCoreError as error:
            message = silence_of(f"queue {self.name}", error, "PRISM_SQS_QUEUE_URLS, PRISM_SQS_ENDPOINT")
            raise QueueUnavailable(message) from error

    def _named(self, error: ClientError) -> PrismError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _MISSING:
            return MissingQueue(f"queue {self.url} does not exist: create it or correct PRISM_SQS_QUEUE_URLS")
        if code in _DENIED or status in (401, 403):
            return AccessDenied(
                f"queue {self.name} answered {code}: check the credentials, and that the role may sqs:ReceiveMessage "
                "and sqs:DeleteMessage on it"
            )
        if code in _THROTTLED or status >= 500:
            return QueueUnavailable(f"queue {self.name} answered {code}: repeat later")
        message = error.response.get("Error", {}).get("Message", "")
        return TerminalError(f"queue {self.name} answered {code}: {message}")


def sqs_client(endpoint: str | None, region: str, wait_seconds: float) -> Any:
    """Returns an SQS client that soon gives up on a silent server, because a sensor tick waits for the call."""
    return aws_client(
        "sqs", endpoint, region, Patience(2, connect_seconds=3, read_seconds=wait_seconds + _ANSWER_SECONDS)
    )


def region_of(url: str) -> str | None:
    """Returns the region in an AWS queue's URL, or None."""
    match = _HOST.fullmatch(urlsplit(url).hostname or "")
    return (match["region"] or match["old_region"]) if match else None
