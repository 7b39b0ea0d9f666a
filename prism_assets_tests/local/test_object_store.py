"""S3 on disk, and Glue and SQS in memory."""

import os
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from prism_assets.domain.errors import ObjectChanged
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.local.test_stack import kill, pid_of, status_of
from prism_local.stack import LocalStack

SERVICES = ("s3", "aws")


def session(stack: LocalStack, secret_key: str | None = None) -> boto3.Session:
    settings = stack.environment()
    return boto3.Session(
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=secret_key or settings["AWS_SECRET_ACCESS_KEY"],
        region_name=settings["AWS_REGION"],
    )


def put(stack: LocalStack, key: str, body: bytes, secret_key: str | None = None) -> None:
    endpoint = stack.environment()["PRISM_S3_ENDPOINT"]
    path_style = Config(s3={"addressing_style": "path"})
    client = session(stack, secret_key).client("s3", endpoint_url=endpoint, config=path_style)
    try:
        client.put_object(Bucket="prism-staging", Key=key, Body=body)
        assert client.get_object(Bucket="prism-staging", Key=key)["Body"].read() == body
    finally:
        client.close()


def databases(stack: LocalStack) -> list[str]:
    client = session(stack).client("glue", endpoint_url=stack.environment()["PRISM_GLUE_ENDPOINT"])
    try:
        names = [database["Name"] for database in client.get_databases()["DatabaseList"]]
        client.create_database(DatabaseInput={"Name": "log"})
        return names
    finally:
        client.close()


def test_objects_survive_and_the_catalog_does_not(stack: LocalStack) -> None:
    assert stack.up(services=SERVICES).catalog_empty
    put(stack, "log/a.json", b"{}\n")
    assert databases(stack) == []
    stack.catalog_published()
    assert not stack.up(services=SERVICES).catalog_empty

    for service in SERVICES:
        kill(pid_of(stack, service))
    assert stack.up(services=SERVICES).catalog_empty
    assert databases(stack) == []
    assert Path(stack.place.data, "s3", "prism-staging", "log", "a.json").read_bytes() == b"{}\n"
    assert Path(stack.place.data, "s3", "prism-lake").is_dir()
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        put(stack, "log/b.json", b"{}\n", secret_key="wrong")
    assert all((status_of(stack, service).memory or 0) > 1e6 for service in SERVICES)


def test_objects_are_written_under_conditions(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.up(services=SERVICES)
    settings = stack.environment()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, settings[name])
    stores = Stores(StoreConfig(endpoint=settings["PRISM_S3_ENDPOINT"], object_tags=False))
    assert stores.put_new("prism-lake", "a", b"torn")
    assert not stores.put_new("prism-lake", "a", b"late")
    _, version = stores.read_version("prism-lake", "a")
    assert stores.replace("prism-lake", "a", b"sound", etag=version)
    assert not stores.replace("prism-lake", "a", b"late", etag=version)
    assert stores.get("prism-lake", "a") == b"sound"
    _, version = stores.read_version("prism-lake", "a")
    stores.delete("prism-lake", ["a"])
    assert not stores.replace("prism-lake", "a", b"late", etag=version)
    assert list(stores.list("prism-lake", "")) == []


def test_objects_of_several_parts_are_read_under_their_etag(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.up(services=SERVICES)
    settings = stack.environment()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, settings[name])
    stores = Stores(StoreConfig(endpoint=settings["PRISM_S3_ENDPOINT"], object_tags=False))
    body = os.urandom(20 << 20)
    for write in (stores.put, stores.put_new):
        stores.delete("prism-lake", ["a"])
        write("prism-lake", "a", body)
        for length in (None, len(body)):
            assert stores.get("prism-lake", "a", length=length) == body
            reading = stores.get_chunks("prism-lake", "a", length=length)
            next(reading)
            stores.put("prism-lake", "a", body[::-1])
            with pytest.raises(ObjectChanged):
                list(reading)
            stores.put("prism-lake", "a", body)
