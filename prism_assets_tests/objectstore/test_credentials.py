"""All clients of a process act as one identity: the Rust client takes what boto3 finds in profiles."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import SettingsError, StoreUnavailable
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.faulty_servers import serving


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without anything of AWS, on a host without a role."""
    for name in (
        "ACCESS_KEY_ID",
        "SECRET_ACCESS_KEY",
        "PROFILE",
        "DEFAULT_PROFILE",
        "CONFIG_FILE",
        "SHARED_CREDENTIALS_FILE",
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def identity_of_a_request() -> str:
    """Returns the access key by which an object was requested."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
            self.send_response(200)
            for name, value in (("Content-Length", "2"), ("ETag", '"e"'), ("Last-Modified", self.date_time_string(0))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with serving(Handler) as address:
        assert Stores(StoreConfig(endpoint=address, retry_seconds=0.1)).get("staging", "a") == b"ok"
    return seen[-1]


def test_a_profile_of_a_person_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = s\n"
        "[logs]\naws_access_key_id = LOGS\naws_secret_access_key = s\n"
    )
    assert identity_of_a_request() == "DEFAULT"
    monkeypatch.setenv("AWS_PROFILE", "logs")
    assert identity_of_a_request() == "LOGS"


def test_the_environment_comes_before_profiles(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".aws" / "credentials").write_text("[default]\naws_access_key_id = FILE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert identity_of_a_request() == "ENVIRONMENT"


def test_a_profile_that_does_not_exist_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "away")
    with pytest.raises(SettingsError, match=r"profile \(away\) could not be found"):
        identity_of_a_request()


def a_program(home: Path, statement: str) -> None:
    (home / "program.py").write_text(statement)
    text = f"[default]\ncredential_process = {sys.executable} {home / 'program.py'}\n"
    (home / ".aws" / "config").write_text(text)


def test_a_program_that_fails_is_an_outage(home: Path) -> None:
    a_program(home, "raise SystemExit('log in first')")
    with pytest.raises(StoreUnavailable, match="log in first"):
        identity_of_a_request()


def test_a_missing_program_is_no_missing_object(home: Path) -> None:
    (home / ".aws" / "config").write_text("[default]\ncredential_process = /nonexistent/program\n")
    stores = Stores(StoreConfig(endpoint="http://127.0.0.1:1", retry_seconds=0.1))
    for call in (lambda: stores.get("staging", "a"), lambda: stores.delete("staging", ["a"])):
        with pytest.raises(StoreUnavailable, match=r"AWS gave no credentials: .*/nonexistent/program"):
            call()


def test_credentials_that_cannot_be_renewed_are_an_outage(home: Path) -> None:
    """A service that gives credentials is asked by the first request, and by later ones before the end."""
    soon = (datetime.now(timezone.utc) + timedelta(seconds=2)).isoformat()
    answer = {"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": soon}
    a_program(
        home,
        f"import os, sys\nif os.path.exists({str(home / 'asked')!r}): sys.exit('log in again')\n"
        f"open({str(home / 'asked')!r}, 'w')\nprint({json.dumps(answer)!r})\n",
    )
    with pytest.raises(StoreUnavailable, match=r"AWS gave no credentials: .*log in again"):
        identity_of_a_request()


def test_a_profile_is_asked_once_for_all_requests(home: Path) -> None:
    answer = {"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t"}
    a_program(home, f"open({str(home / 'asked')!r}, 'a').write('.')\nprint({json.dumps(answer)!r})\n")
    for _ in range(3):
        assert identity_of_a_request() == "A"
    assert (home / "asked").read_text() == "."
