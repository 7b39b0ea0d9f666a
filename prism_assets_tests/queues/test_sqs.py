"""Queues: messages received and deleted on a real server, and its refusals as errors."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping

import boto3
import pytest
from botocore.exceptions import ClientError

from prism_assets.domain.errors import AccessDenied, MissingQueue, PrismError, QueueUnavailable, TerminalError
from prism_assets.queues.sqs import Message, SqsQueue, region_of
from prism_assets_tests.notifications import QueueOfTest


@pytest.fixture
def sqs(services: Mapping[str, str], queue: QueueOfTest) -> SqsQueue:
    return SqsQueue(queue.url, services["PRISM_SQS_ENDPOINT"], "us-east-1")


def test_ten_messages_come_at_a_time_and_are_gone_when_deleted(sqs: SqsQueue, queue: QueueOfTest) -> None:
    queue.send(*(f"body {number}" for number in range(25)))
    found = [*sqs.receive(), *sqs.receive(), *sqs.receive()]
    assert sorted(item.body for item in found) == sorted(f"body {number}" for number in range(25))
    assert sqs.receive() == []
    assert queue.count() == 25
    assert sqs.delete(found) == ()
    assert queue.count() == 0


def test_messages_that_are_not_deleted_come_again(sqs: SqsQueue, queue: QueueOfTest) -> None:
    queue.hide_for(1)
    queue.send("again")
    first = sqs.receive()
    time.sleep(1.1)
    assert [item.message_id for item in sqs.receive()] == [item.message_id for item in first]


def test_a_receipt_the_queue_refuses_is_told_and_the_others_are_deleted(sqs: SqsQueue, queue: QueueOfTest) -> None:
    queue.send("good")
    wrong = Message(message_id="m", receipt="nonsense", body="")
    assert sqs.delete([wrong, *sqs.receive()]) == (
        f"queue {sqs.name} kept 1 message, to come again: ReceiptHandleIsInvalid",
    )
    assert queue.count() == 0


def test_a_missing_queue_is_terminal_and_says_which_setting_names_it(
    sqs: SqsQueue, services: Mapping[str, str]
) -> None:
    missing = SqsQueue(sqs.url + "-missing", services["PRISM_SQS_ENDPOINT"], "us-east-1")
    with pytest.raises(MissingQueue, match="PRISM_SQS_QUEUE_URLS"):
        missing.receive()
    (problem,) = missing.delete([Message(message_id="m", receipt="r", body="")])
    assert "come again" in problem


def test_a_server_that_is_not_there_is_transient(queue: QueueOfTest) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(QueueUnavailable, match="does not answer"):
        SqsQueue(queue.url, f"http://127.0.0.1:{port}", "us-east-1").receive()


def test_missing_credentials_are_denied_access(
    queue: QueueOfTest, services: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers credentials
    with pytest.raises(AccessDenied, match="AWS_ACCESS_KEY_ID"):
        # No other test has this timeout, because a process reuses a client once it has found credentials.
        SqsQueue(queue.url, services["PRISM_SQS_ENDPOINT"], "us-east-1", wait_seconds=1.5).receive()


@pytest.fixture
def refusing(sqs: SqsQueue) -> Iterator[Callable[[str, int], SqsQueue]]:
    """A queue whose server answers with error codes that the local server never gives."""
    events, name = sqs._client.meta.events, "before-parameter-build.sqs"
    answers: list[Callable[..., None]] = []

    def refuse(code: str, status: int) -> SqsQueue:
        def answer(**_: object) -> None:
            response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(response, "ReceiveMessage")  # type: ignore[arg-type]

        answers.append(answer)
        events.register(name, answer)
        return sqs

    yield refuse
    for answer in answers:
        events.unregister(name, answer)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDenied", 403, AccessDenied),
        ("InvalidClientTokenId", 400, AccessDenied),
        ("Strange", 403, AccessDenied),
        ("OverLimit", 400, QueueUnavailable),
        ("RequestThrottled", 400, QueueUnavailable),
        ("Strange", 500, QueueUnavailable),
        ("UnsupportedOperation", 400, TerminalError),
    ],
)
def test_refusals_become_errors_that_say_whether_to_repeat(
    refusing: Callable[[str, int], SqsQueue], code: str, status: int, error: type[PrismError]
) -> None:
    with pytest.raises(error) as raised:
        refusing(code, status).receive()
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/events", "eu-west-1"),
        ("https://eu-west-1.queue.amazonaws.com/123456789012/events", "eu-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/events", "cn-north-1"),
        ("http://127.0.0.1:5000/123456789012/events", None),
        ("https://evil.example/sqs.eu-west-1.amazonaws.com", None),
    ],
)
def test_the_region_of_a_queue_is_that_of_its_address(url: str, region: str | None) -> None:
    assert region_of(url) == region


def test_showing_a_queue_opens_nothing() -> None:
    assert repr(SqsQueue("https://sqs.eu-west-1.amazonaws.com/1/events", None, "us-east-1")) == "SqsQueue(events)"
