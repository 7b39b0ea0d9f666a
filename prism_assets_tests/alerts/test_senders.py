"""Senders against real servers: messages, retries and errors."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest

from prism_assets.alerts.message import write_alert
from prism_assets.alerts.senders import make_sender
from prism_assets.domain.errors import AlertNotSent
from prism_assets_tests.alerts.test_message import a_run

ALERT = write_alert([a_run()])


@dataclass
class Receiver:
    """A server that answers with the given statuses in turn, then with 200."""

    port: int
    statuses: list[int] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def target(self) -> str:
        return f"webhook:http://127.0.0.1:{self.port}/hook/hush"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.paths.append(self.path)
            found.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = found.statuses.pop(0) if found.statuses else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the name that the server looks for

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def send(target: str, sns_endpoint: str | None = None) -> None:
    make_sender(target, lambda _text: None, sns_endpoint).send(ALERT)


def test_the_log_gets_the_text() -> None:
    lines: list[str] = []
    make_sender("log", lines.append).send(ALERT)
    assert lines == [ALERT.text]


def test_a_webhook_gets_text_for_people_and_runs_for_programs(receiver: Receiver) -> None:
    send(receiver.target)
    (document,) = receiver.bodies
    assert document["text"] == ALERT.text
    assert document["failed"] == 1
    assert document["runs"][0]["tables"] == ["log.events"]
    assert receiver.paths == ["/hook/hush"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_webhook_is_tried_once_more(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    send(receiver.target)
    assert len(receiver.bodies) == 2


@pytest.mark.parametrize(("statuses", "tries"), [([404], 1), ([403], 1), ([302], 1), ([500, 502], 2)])
def test_a_webhook_that_refuses_is_told_without_its_address(
    receiver: Receiver, statuses: list[int], tries: int
) -> None:
    receiver.statuses = list(statuses)
    with pytest.raises(AlertNotSent, match=f"it answered {statuses[-1]}$") as caught:
        send(receiver.target)
    assert "hush" not in str(caught.value)
    assert receiver.paths == ["/hook/hush"] * tries


def test_a_webhook_that_is_away_is_told_without_its_address() -> None:
    with pytest.raises(AlertNotSent, match="cannot be reached") as caught:
        send("webhook:http://127.0.0.1:1/hush")
    assert "hush" not in str(caught.value)


def test_a_webhook_that_speaks_something_else_is_told_without_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as answering:

        def answer() -> None:
            server.settimeout(5)
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x50\r\n")

        answering.submit(answer)
        with pytest.raises(AlertNotSent, match=r"cannot be reached \(BadStatusLine\)") as caught:
            send(f"webhook:http://127.0.0.1:{server.getsockname()[1]}/hush")
    assert "hush" not in str(caught.value)


def test_a_topic_gets_the_text(services: Mapping[str, str]) -> None:
    endpoint = services["MOTO_ENDPOINT"]
    aws: Any = boto3.Session(region_name="us-east-1")
    sns, sqs = aws.client("sns", endpoint_url=endpoint), aws.client("sqs", endpoint_url=endpoint)
    topic = sns.create_topic(Name="alerts")["TopicArn"]
    queue = sqs.create_queue(QueueName="alerts")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    send(f"sns:{topic}", endpoint)
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    document = json.loads(message["Body"])
    assert (document["Subject"], document["Message"]) == (ALERT.subject, ALERT.text)


def test_a_topic_that_is_not_there_is_told(services: Mapping[str, str]) -> None:
    with pytest.raises(AlertNotSent, match="SNS refused an alert: NotFound"):
        send("sns:arn:aws:sns:us-east-1:123456789012:nowhere", services["MOTO_ENDPOINT"])


def test_a_server_of_sns_that_is_away_is_told() -> None:
    with pytest.raises(AlertNotSent, match="SNS cannot be reached"):
        send("sns:arn:aws:sns:us-east-1:123456789012:nowhere", "http://127.0.0.1:1")
