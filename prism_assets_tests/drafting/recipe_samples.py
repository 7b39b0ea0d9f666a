"""Made lines for each recipe, in the shape that the documentation of the vendor gives."""

from __future__ import annotations

import gzip
import json
from typing import Any

ISSUER = {
    "type": "Role",
    "principalId": "AROAEXAMPLE",
    "arn": "arn:aws:iam::111122223333:role/deploy",
    "accountId": "111122223333",
    "userName": "deploy",
}


def cloudtrail() -> bytes:
    """A log file of CloudTrail with two events."""
    event: dict[str, Any] = {
        "eventVersion": "1.10",
        "userIdentity": {
            "type": "AssumedRole",
            "principalId": "AROAEXAMPLE:session",
            "arn": "arn:aws:sts::111122223333:assumed-role/deploy/session",
            "accountId": "111122223333",
            "accessKeyId": "ASIAEXAMPLE",
            "sessionContext": {
                "sessionIssuer": ISSUER,
                "attributes": {"creationDate": "2026-03-01T09:55:00Z", "mfaAuthenticated": "false"},
            },
        },
        "eventTime": "2026-03-01T10:00:22Z",
        "eventSource": "s3.amazonaws.com",
        "eventName": "GetObject",
        "awsRegion": "eu-central-1",
        "sourceIPAddress": "198.51.100.7",
        "userAgent": "[aws-cli/2.15]",
        "requestParameters": {"bucketName": "b", "key": "k/1"},
        "responseElements": None,
        "additionalEventData": {"SignatureVersion": "SigV4"},
        "requestID": "79EXAMPLE",
        "eventID": "b8d1f0a3-6c11-4d22-9e46-0c7a4d5f1e11",
        "readOnly": True,
        "resources": [
            {"type": "AWS::S3::Object", "ARN": "arn:aws:s3:::b/k/1"},
            {"accountId": "111122223333", "type": "AWS::S3::Bucket", "ARN": "arn:aws:s3:::b"},
        ],
        "eventType": "AwsApiCall",
        "managementEvent": False,
        "recipientAccountId": "111122223333",
        "eventCategory": "Data",
        "tlsDetails": {
            "tlsVersion": "TLSv1.3",
            "cipherSuite": "TLS_AES_128_GCM_SHA256",
            "clientProvidedHostHeader": "b.s3.eu-central-1.amazonaws.com",
        },
    }
    denied = {**event, "eventName": "PutObject", "errorCode": "AccessDenied", "errorMessage": "Access Denied"}
    return gzip.compress(json.dumps({"Records": [event, denied]}).encode())


def cloudwatch_logs() -> bytes:
    """An object of Firehose: compressed documents of CloudWatch back to back, the first of them a check."""
    around = {"owner": "111122223333", "logGroup": "/aws/lambda/shop", "logStream": "2026/03/01/[$LATEST]a1"}
    check = {
        "messageType": "CONTROL_MESSAGE",
        "owner": "CloudwatchLogs",
        "logGroup": "",
        "logStream": "",
        "subscriptionFilters": [],
        "logEvents": [{"id": "", "timestamp": 1772359222000, "message": "CWL CONTROL MESSAGE: Checking health"}],
    }
    data = {
        "messageType": "DATA_MESSAGE",
        **around,
        "subscriptionFilters": ["all"],
        "logEvents": [
            {"id": f"3955509{number}", "timestamp": 1772359222123 + number, "message": f"START RequestId: {number}\n"}
            for number in range(2)
        ],
    }
    return b"".join(gzip.compress(json.dumps(document).encode()) for document in (check, data))


def otlp_logs() -> bytes:
    """Two requests of OTLP/JSON, a line each."""
    record: dict[str, Any] = {
        "timeUnixNano": "1772359222123456789",
        "observedTimeUnixNano": "1772359222200000000",
        "severityNumber": 9,
        "severityText": "INFO",
        "body": {"stringValue": "paid"},
        "attributes": [
            {"key": "http.response.status_code", "value": {"intValue": "200"}},
            {"key": "tags", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}},
        ],
        "flags": 1,
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
    }
    observed = {"timeUnixNano": "0", "observedTimeUnixNano": "1772359223000000000", "body": {"intValue": "7"}}
    request = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeLogs": [{"scope": {"name": "pay", "version": "1.2"}, "logRecords": [record, observed]}],
            }
        ]
    }
    return (json.dumps(request) + "\n").encode() * 2


def kubernetes_audit() -> bytes:
    """Two events of the log backend."""
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "0f1f3b9c-6f3f-4a52-9d3f-4c1f1a6d2f10",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/shop/secrets/db",
        "verb": "get",
        "user": {
            "username": "system:serviceaccount:shop:api",
            "uid": "0c1c4a6e",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/pod-name": ["api-0"]},
        },
        "sourceIPs": ["10.0.0.7"],
        "userAgent": "kubectl/v1.32",
        "objectRef": {"resource": "secrets", "namespace": "shop", "name": "db", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2026-03-01T10:00:22.123456Z",
        "stageTimestamp": "2026-03-01T10:00:22.130000Z",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }
    refused = {
        **event,
        "impersonatedUser": {"username": "jane", "groups": ["dev"]},
        "responseStatus": {"metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403},
    }
    return b"".join(json.dumps(item).encode() + b"\n" for item in (event, refused))


def github_webhooks() -> bytes:
    """A push and a merged pull request, as a receiver writes them."""
    repository = {
        "id": 1296269, "node_id": "MDEwOlJl", "full_name": "octocat/Hello-World", "private": False, "topics": ["a"],
        "owner": {"login": "octocat"}, "default_branch": "main",
    }  # fmt: skip
    sender = {"id": 583231, "login": "octocat", "type": "User"}
    push = {
        "ref": "refs/heads/main",
        "repository": repository,
        "sender": sender,
        "commits": [{"id": "7fd1a60b01f91b31", "message": "Fix\n\nit", "timestamp": "2026-03-01T11:59:58+02:00"}],
    }
    pull_request = {
        "action": "closed",
        "number": 42,
        "pull_request": {
            "number": 42, "title": "Fix it", "state": "closed", "merged": True, "created_at": "2026-02-28T10:00:00Z",
            "merged_at": "2026-03-01T10:00:30Z", "user": sender,
        },
        "repository": repository,
        "organization": {"id": 9919, "login": "github"},
        "sender": sender,
    }  # fmt: skip
    deliveries = [
        {"time": "2026-03-01T10:00:22Z", "event": "push", "delivery": "72d3162e-cc78", "payload": push},
        {"time": "2026-03-01T10:00:31Z", "event": "pull_request", "delivery": "72d3162e-cc79", "payload": pull_request},
    ]
    return b"".join(json.dumps(delivery).encode() + b"\n" for delivery in deliveries)


def alb() -> bytes:
    """Two entries of a load balancer: one answered by a target, one refused before it had a target."""
    answered = (
        "https 2026-03-01T10:00:22.186641Z app/shop/50dc6c495c0c9188 192.0.2.10:46532 10.0.0.7:80 0.000 0.048 0.001 "
        '200 200 34 366 "GET https://shop.example:443/buy?q=a%20b HTTP/2.0" "curl/8.5 (\\"x\\")" '
        "TLS_AES_128_GCM_SHA256 TLSv1.3 arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/shop/73e2 "
        '"Root=1-58337262-36d228ad5d99923122bbe354" "shop.example" "session-reused" 1 2026-03-01T10:00:22.137000Z '
        '"waf,forward" "-" "-" "10.0.0.7:80" "200" "-" "-" TID_5ef8d5c1'
    )
    refused = (
        "http 2026-03-01T10:00:23.000000Z app/shop/50dc6c495c0c9188 192.0.2.11:5601 - -1 -1 -1 400 - 0 272 "
        '"- http://shop.example:80- -" "-" - - - "-" "-" "-" - 2026-03-01T10:00:23.000000Z "-" "-" "-" "-" "-" '
        '"Ambiguous" "BadUri" - "later" "fields"'
    )
    return gzip.compress(f"{answered}\n{refused}\n".encode())


def vpc_flow_logs() -> bytes:
    """Records of the default format below their header; in the last interval nothing was seen."""
    return gzip.compress(
        b"version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action "
        b"log-status\n"
        b"2 111122223333 eni-0a1b 172.31.16.139 2001:db8::1 20641 22 6 20 4249 1772359200 1772359260 ACCEPT OK\n"
        b"2 111122223333 eni-0a1b - - - - - - - 1772359260 1772359320 - NODATA\n"
    )


def nginx() -> bytes:
    """Lines of the format combined: a page, and bytes that are no request."""
    return (
        b'203.0.113.7 - - [01/Mar/2026:11:00:22 +0100] "GET /buy?q=1 HTTP/1.1" 200 612 "https://shop.example/" '
        b'"Mozilla/5.0 (X11; Linux x86_64)"\n'
        b'2001:db8::7 - ann [01/Mar/2026:11:00:23 +0100] "\\x16\\x03\\x01" 400 157 "-" "-"\n'
    )
