"""The Trino over the local stack: its Java, and its settings."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from prism_assets.settings import load_settings
from prism_assets_tests.defs.server import free_port
from prism_assets_tests.local.test_java import fake_java
from prism_local.faults import StackError
from prism_local.readers.known import READERS
from prism_local.readers.trino_server import java_home, write_settings

STACK = {
    "PRISM_DATABASE_URL": "postgresql+psycopg://prism:secret@127.0.0.1:5432/prism",
    "PRISM_BUCKET": "prism-lake",
    "PRISM_S3_ENDPOINT": "http://127.0.0.1:9000",
    "PRISM_GLUE_ENDPOINT": "http://127.0.0.1:9001",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def a_java(home: Path, version: str) -> Path:
    fake_java(home, f"echo 'openjdk version \"{version}\"' >&2")
    return home


def test_a_server_that_is_missing_is_told_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINO_URL", f"http://127.0.0.1:{free_port()}")
    for reader in READERS:
        assert (reader.why_not is not None) == reader.name.startswith("Trino")
        if reader.why_not is not None:
            assert "no Trino answers at http://127.0.0.1:" in reader.why_not()


def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "17.0.15")))
    with pytest.raises(StackError, match="Java 24 or newer: name its folder with TRINO_JAVA_HOME"):
        java_home()
    monkeypatch.setenv("TRINO_JAVA_HOME", str(a_java(tmp_path / "new", "25.0.1")))
    assert java_home() == tmp_path / "new"


def test_a_missing_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINO_JAVA_HOME", str(tmp_path))
    with pytest.raises(StackError, match="TRINO_JAVA_HOME"):
        java_home()


def test_the_catalogs_lead_to_the_local_stack_and_only_the_owner_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in STACK.items():
        monkeypatch.setenv(name, value)
    folder = write_settings(load_settings(), tmp_path)
    texts = {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*.*") if file.is_file()}
    assert f"s3.endpoint={STACK['PRISM_S3_ENDPOINT']}" in texts["catalog/hive.properties"]
    assert f"hive.metastore.glue.endpoint-url={STACK['PRISM_GLUE_ENDPOINT']}" in texts["catalog/hive.properties"]
    assert "iceberg.catalog.type=jdbc" in texts["catalog/iceberg.properties"]
    assert "node.bind-ip=127.0.0.1" in texts["node.properties"]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*.properties")}
    assert modes == {0o600}
