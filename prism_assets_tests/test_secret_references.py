"""Settings that name the place of a secret: each place, each mistake, and passwords that change under a process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import sqlalchemy

from prism_assets import aws_clients, secret_references
from prism_assets.domain.errors import DatabaseUnavailable, MissingSecret, SecretsUnavailable, SettingsError
from prism_assets.kafka.connections import connection_of
from prism_assets.kernels.expressions.session import secret_of_worker
from prism_assets.kernels.failures import failure_of
from prism_assets.known_secrets import secret_values
from prism_assets.metadata.database import Database
from prism_assets.secret_references import TOKEN_OF_RDS, password_at, secret_at, secrets_seen
from prism_assets.settings import load_alert_settings, load_settings
from prism_assets_tests.postgres import PostgresServer

URL = "postgresql://prism@db.example/prism"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No local stack and no prism.toml near, and no answer from an earlier test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRISM_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(secret_references, "_kept", {})
    monkeypatch.setattr(secret_references, "_seen", {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("canary-file\n")
    return path


@pytest.fixture
def manager(services: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty AWS Secrets Manager, the one that references find."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", services["MOTO_ENDPOINT"])
    aws_clients.CLIENTS.close()
    client = boto3.client("secretsmanager", region_name="us-east-1")
    yield client
    for held in client.list_secrets()["SecretList"]:
        client.delete_secret(SecretId=held["ARN"], ForceDeleteWithoutRecovery=True)
    client.close()
    aws_clients.CLIENTS.close()


def test_a_file_a_variable_and_a_text_are_secrets(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", "file:/is/the/password")
    assert secret_at(f"file:{file}") == "canary-file"
    assert secret_at("env:ELSEWHERE") == "file:/is/the/password"
    assert secret_at("a password: like this") == "a password: like this"
    file.write_bytes(b"line 1\nline 2\r\n")
    assert secret_at(f"file:{file}") == "line 1\nline 2"


def test_secrets_manager_gives_a_secret_or_one_value_of_it(manager: Any) -> None:
    manager.create_secret(Name="plain", SecretString="canary-plain")
    arn = manager.create_secret(Name="login", SecretString=json.dumps({"password": "canary-value", "port": 5432}))[
        "ARN"
    ]
    assert secret_at("aws-secretsmanager:plain") == "canary-plain"
    assert secret_at(f"aws-secretsmanager:{arn}#password") == "canary-value"
    for reference, sentence in {
        "aws-secretsmanager:nowhere": "has no secret nowhere: correct its name or AWS_REGION",
        "aws-secretsmanager:plain#password": "the secret plain is no JSON object",
        "aws-secretsmanager:login#user": "the secret login has no value user",
        "aws-secretsmanager:login#port": "the value port of the secret login is no text",
        "aws-secretsmanager:": "must look like aws-secretsmanager:NAME-OR-ARN#key",
    }.items():
        with pytest.raises(SettingsError) as refused:
            secret_at(reference)
        assert sentence in str(refused.value)
        assert "canary" not in str(refused.value)


def test_an_answer_serves_for_minutes(manager: Any) -> None:
    manager.create_secret(Name="plain", SecretString="first")
    assert secret_at("aws-secretsmanager:plain") == "first"
    manager.put_secret_value(SecretId="plain", SecretString="second")
    assert secret_at("aws-secretsmanager:plain") == "first"
    assert secret_at("aws-secretsmanager:plain", again=True) == "second"


def test_a_manager_that_does_not_answer_is_worth_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")
    monkeypatch.setattr(secret_references, "_TRIES", 1)
    aws_clients.CLIENTS.close()
    monkeypatch.setenv("PRISM_ALERT", "aws-secretsmanager:alert")
    with pytest.raises(SecretsUnavailable, match="AWS Secrets Manager does not answer for alert"):
        load_alert_settings()
    aws_clients.CLIENTS.close()


def test_all_wrong_references_are_told_at_once_without_secrets(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("PRISM_BUCKET", "lake")
    monkeypatch.setenv("PRISM_DATABASE_URL", f"file:{file}")
    monkeypatch.setenv("PRISM_DATABASE_PASSWORD", f"file:{tmp_path}")
    monkeypatch.setenv("PRISM_DUCKLAKE_URL", f"file:{tmp_path}/empty")
    monkeypatch.setenv("PRISM_ICEBERG_REST_TOKEN", "env:NOT_SET")
    monkeypatch.setenv("PRISM_ICEBERG_REST_CREDENTIAL", "aws-secretmanager:x")
    monkeypatch.setenv("PRISM_SPARK_REMOTE", f"file:{tmp_path}/binary")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    for sentence in (
        "PRISM_DATABASE_URL: must look like postgresql",
        f"PRISM_DATABASE_PASSWORD: the file {tmp_path} with the secret does not exist",
        f"PRISM_DUCKLAKE_URL: the file {tmp_path}/empty with the secret is empty",
        "PRISM_ICEBERG_REST_TOKEN: the variable NOT_SET with the secret is not set",
        "PRISM_ICEBERG_REST_CREDENTIAL: aws-secretmanager is no place of secrets; did you mean aws-secretsmanager?",
        f"PRISM_SPARK_REMOTE: the file {tmp_path}/binary with the secret is no text in UTF-8",
    ):
        assert sentence in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["postgresql://db.example/p", "postgresql://prism:a@db.example/p", "postgresql://prism@h/p?password=a"]
)
def test_half_a_login_is_refused(url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_DATABASE_PASSWORD", f"file:{file}")
    with pytest.raises(SettingsError, match="must name the user, and no password"):
        load_settings(database_url=url, bucket="lake")


def test_a_webhook_and_a_cluster_of_kafka_may_be_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("webhook:https://hooks.example/canary-hook\n")
    monkeypatch.setenv("PRISM_ALERT", f"file:{file}")
    assert load_alert_settings().alert.get_secret_value() == "webhook:https://hooks.example/canary-hook"
    assert "https://hooks.example/canary-hook" in secret_values()
    cluster = {
        "PRISM_KAFKA_MAIN_BOOTSTRAP_SERVERS": "env:is-a-host",
        "PRISM_KAFKA_MAIN_SASL_PASSWORD": f"file:{file}",
    }
    assert connection_of("main", cluster).settings == {
        "bootstrap.servers": "env:is-a-host",
        "sasl.password": "webhook:https://hooks.example/canary-hook",
    }
    with pytest.raises(SettingsError, match="PRISM_KAFKA_MAIN_SASL_PASSWORD: the variable NOT_SET"):
        connection_of("main", {**cluster, "PRISM_KAFKA_MAIN_SASL_PASSWORD": "env:NOT_SET"})


def test_the_secret_of_an_expression_may_be_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_SECRET_MAIL", f"file:{file}")
    assert secret_of_worker("mail") == "canary-file"
    file.unlink()
    with pytest.raises(MissingSecret, match=r"no secret PRISM_SECRET_MAIL, .*does not exist"):
        secret_of_worker("mail")


def test_a_silent_manager_of_secrets_is_charged_to_no_object() -> None:
    """The bucket serves other objects meanwhile, and the fault would else be that of the object."""
    failure = failure_of(SecretsUnavailable("no answer; repeat"), "an object was read", at_source=True)
    assert failure.transient
    assert not failure.at_source


def test_messages_hide_secrets_and_show_references(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_BUCKET", "lake")
    monkeypatch.setenv("PRISM_DATABASE_URL", URL)
    monkeypatch.setenv("PRISM_DATABASE_PASSWORD", f"file:{file}")
    monkeypatch.setenv("PRISM_DAGSTER_PG_PASSWORD", "env:NOT_SET")
    hidden = secret_values()
    assert "canary-file" in hidden
    assert not any(text.startswith(("file:", "env:")) for text in hidden)


def test_a_token_of_rds_is_for_one_user_host_and_region() -> None:
    host = "prism.abc.eu-west-3.rds.amazonaws.com"
    token = password_at(TOKEN_OF_RDS, host=host, port=5432, user="prism")
    asked = parse_qs(urlsplit(f"//{token}").query)
    assert token.startswith(f"{host}:5432/?")
    assert asked["DBUser"] == ["prism"]
    assert "/eu-west-3/rds-db/" in asked["X-Amz-Credential"][0]
    with pytest.raises(SettingsError, match="a password of a database, and of nothing else"):
        secret_at(TOKEN_OF_RDS)


@pytest.fixture
def login(postgres: PostgresServer) -> Iterator[sqlalchemy.URL]:
    """The address of an empty database for a user whose password changes."""
    url = postgres.copy_database("template1", "prism_changing")
    _as_owner(url, "CREATE ROLE changing LOGIN PASSWORD 'first-password'")
    place = sqlalchemy.make_url(url)
    yield sqlalchemy.URL.create(
        "postgresql", username="changing", host=place.host, port=place.port, database=place.database
    )
    postgres.drop_database(url)
    _as_owner(postgres.url, "DROP ROLE changing")


def _as_owner(url: str, statement: str) -> None:
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)


def test_a_password_that_was_changed_is_asked_for_again(
    login: sqlalchemy.URL, postgres: PostgresServer, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running process has the former answer, and its sessions end with the change."""
    manager.create_secret(Name="login", SecretString=json.dumps({"password": "first-password"}))
    monkeypatch.setenv("PRISM_DATABASE_PASSWORD", "aws-secretsmanager:login#password")
    url = load_settings(database_url=login.render_as_string(), bucket="lake").database_url.get_secret_value()
    assert "first-password" not in url
    database = Database(url)
    assert not database.has_table("prism_tables")
    _as_owner(postgres.url, "ALTER ROLE changing PASSWORD 'second-password'")
    manager.put_secret_value(SecretId="login", SecretString=json.dumps({"password": "second-password"}))
    postgres.end_sessions(url)
    assert not database.has_table("prism_tables")
    database.dispose()


def test_each_session_gets_a_token_of_its_own(login: sqlalchemy.URL, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests knows no tokens and refuses them as passwords."""
    tokens: list[str] = []
    made = secret_references._token

    def noted(*place: Any) -> str:
        tokens.append(made(*place))
        return tokens[-1]

    monkeypatch.setattr(secret_references, "_token", noted)
    monkeypatch.setenv("PRISM_DATABASE_PASSWORD", TOKEN_OF_RDS)
    url = load_settings(database_url=login.render_as_string(), bucket="lake").database_url.get_secret_value()
    database = Database(url)
    for _ in range(2):
        with pytest.raises(Exception, match="password authentication failed") as refused:
            database.has_table("prism_tables")
        assert not isinstance(refused.value, DatabaseUnavailable)
        assert not any(token in str(refused.value) for token in tokens)
    assert len(tokens) >= 2
    database.dispose()


def test_a_former_password_stays_hidden(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sessions and clients may still be at work."""
    monkeypatch.setattr(secret_references, "_MOST_KEPT", 2)
    for content in ("first", "second"):
        file.write_text(content)
        assert secret_at(f"file:{file}") == content
    assert secrets_seen() == {"first", "second"}
    file.write_text("third")
    secret_at(f"file:{file}")
    assert secrets_seen() == {"second", "third"}, "bounded"
