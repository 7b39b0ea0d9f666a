"""Messages as S3, SNS and EventBridge write them, and a queue of one test."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any
from urllib.parse import quote_plus

import boto3

_NUMBERS = itertools.count(1)
EVENT_TIME = "2026-03-01T11:59:58.123Z"


def a_record(
    key: str, *, bucket: str = "staging", name: str = "ObjectCreated:Put", size: Any = 1, **more: Any
) -> dict[str, Any]:
    """Returns one event in the form of a bucket.

    `more` are further fields of the object, such as eTag and sequencer.
    """
    item = {"key": quote_plus(key, safe="/"), "size": size, **more}
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": EVENT_TIME,
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": bucket}, "object": item},
    }


def a_body(*records: Any) -> str:
    """A message with these events."""
    return json.dumps({"Records": records})


def by_sns(body: str) -> str:
    """Returns a message as passed on by a topic."""
    topic = "arn:aws:sns:us-east-1:123456789012:staging"
    return json.dumps({"Type": "Notification", "MessageId": "m", "TopicArn": topic, "Message": body})


def by_eventbridge(key: str, *, bucket: str = "staging", kind: str = "Object Created", **more: Any) -> str:
    """Returns an event in the form of EventBridge: keys are not encoded."""
    item = {"key": key, "size": 1, **more}
    detail = {"version": "0", "bucket": {"name": bucket}, "object": item, "reason": "PutObject"}
    return json.dumps(
        {"version": "0", "source": "aws.s3", "detail-type": kind, "time": "2026-03-01T11:59:58Z", "detail": detail}
    )


TEST_EVENT = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "staging", "RequestId": "1"})


class QueueOfTest:
    """A real queue of the local SQS server, seen from the bucket's side.

    A test that waits for the redelivery of messages calls `hide_for(1)` before they are received.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1")
        self.url: str = self._client.create_queue(QueueName=f"q{os.getpid()}-{next(_NUMBERS)}")["QueueUrl"]
        self.hide_for(600)

    def hide_for(self, seconds: int) -> None:
        """Sets the time after which received, undeleted messages come again."""
        self._client.set_queue_attributes(QueueUrl=self.url, Attributes={"VisibilityTimeout": str(seconds)})

    @property
    def arn(self) -> str:
        """The name of the queue in settings of buckets."""
        answer = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def send(self, *bodies: str) -> None:
        """Puts messages."""
        for start in range(0, len(bodies), 10):
            part = bodies[start : start + 10]
            entries: Any = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(part)]
            assert not self._client.send_message_batch(QueueUrl=self.url, Entries=entries).get("Failed")

    def tell(self, *keys: str) -> None:
        """Puts a message for each new object."""
        self.send(*(a_body(a_record(key)) for key in keys))

    def count(self) -> int:
        """Returns the number of undeleted messages, hidden ones included.

        The server counts one after the other, and misses a message that becomes visible between the two counts.
        """
        return max(self._count() for _ in range(3))

    def _count(self) -> int:
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(value) for value in answer["Attributes"].values())

    def delete(self) -> None:
        """Removes the queue."""
        self._client.delete_queue(QueueUrl=self.url)
