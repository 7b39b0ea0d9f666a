"""Sources of settings, and secrets: every way by which a secret comes in, together with other mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import prism_assets
from prism_assets import secret_references
from prism_assets.domain.errors import SettingsError
from prism_assets.known_secrets import secret_values
from prism_assets.settings import EngineSettings, PrismSettings, load, load_settings

DATABASE = "postgresql://prism:c%40nary-database@db.example/prism"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No local stack and no prism.toml near."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRISM_HOME", str(tmp_path / "none"))


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN",
        "PRISM_DAGSTER_PG_PASSWORD",
        "PGPASSWORD",
        "PRISM_KAFKA_MAIN_SASL_PASSWORD",
        "PRISM_KAFKA_OTHER_SSL_KEY_PASSWORD",
    ],
)
def test_secrets_that_only_others_read_are_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "canary")
    assert "canary" in secret_values()


def test_the_passwords_of_the_database_are_known_as_written_and_as_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_BUCKET", "lake")
    monkeypatch.setenv("PRISM_DATABASE_URL", f"{DATABASE}?password=canary-query")
    assert {"c%40nary-database", "c@nary-database", "canary-query"} <= secret_values()


def test_secrets_in_further_settings_of_spark_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "spark.hadoop.fs.s3a.secret.key": "canary-key",
        "spark.hadoop.fs.s3a.token.enabled": "true",
        "spark.kerberos.renewal.token": "3600",
        "spark.executor.memory": "4g",
    }
    monkeypatch.setenv("PRISM_BUCKET", "lake")
    monkeypatch.setenv("PRISM_DATABASE_URL", DATABASE)
    monkeypatch.setenv("PRISM_SPARK_CONFIG", json.dumps(given))
    known = secret_values()
    assert "canary-key" in known
    assert not {"true", "3600", "4g"} & known


def test_secrets_are_known_where_other_settings_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_DATABASE_URL", DATABASE.replace("postgresql", "mysql"))
    monkeypatch.setenv("PRISM_SPARK_REMOTE", "spark.example/;token=canary-token")
    assert {"c%40nary-database", "canary-token"} <= secret_values()


def test_a_token_ends_where_the_next_word_of_its_address_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_SPARK_REMOTE", "sc://spark.example:15002/;user_id=me;token=canary-token;use_ssl=true")
    assert "canary-token" in secret_values()


def test_the_address_of_a_webhook_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_ALERT", "webhook:https://hooks.example/canary-hook")
    assert "https://hooks.example/canary-hook" in secret_values()


def test_settings_of_prism_toml_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PRISM_DATABASE_URL", raising=False)
    (tmp_path / "prism.toml").write_text(
        f'bucket = "lake"\ndatabase_url = "{DATABASE}"\nspark_remote = "sc://spark.example/;token=canary-token"\n'
    )
    assert {"c@nary-database", "canary-token"} <= secret_values()


def test_nothing_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setattr(secret_references, "_seen", {})  # earlier tests of this process may have followed references
    assert secret_values() == frozenset()


LOCAL = "PRISM_DATABASE_URL=postgresql://prism@local/prism\nPRISM_BUCKET=local\nPRISM_S3_ENDPOINT=http://local:9000\n"


def _local_stack(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearby local stack whose environment does not leak into other tests."""
    for name in ("PRISM_DATABASE_URL", "PRISM_BUCKET", "PRISM_S3_ENDPOINT"):
        monkeypatch.setenv(name, "")  # so that what is put there is taken away again
        monkeypatch.delenv(name)
    home.mkdir()
    (home / "env").write_text(LOCAL)
    monkeypatch.setenv("PRISM_HOME", str(home))


def test_the_local_stack_is_left_alone_where_prism_toml_names_a_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _local_stack(tmp_path / ".prism", monkeypatch)
    (tmp_path / "prism.toml").write_text(f'database_url = "{DATABASE}"\nbucket = "lake"\n')
    settings = load_settings()
    assert "db.example" in settings.database_url.get_secret_value()
    assert (settings.bucket, settings.s3_endpoint) == ("lake", None)


def test_the_local_stack_serves_where_prism_toml_names_no_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _local_stack(tmp_path / ".prism", monkeypatch)
    (tmp_path / "prism.toml").write_text('prefix = "mine/"\n')
    settings = load_settings()
    assert "@local/prism" in settings.database_url.get_secret_value()
    assert (settings.bucket, settings.prefix) == ("local", "mine/")


def _fields(kind: type[PrismSettings] = PrismSettings) -> Iterator[str]:
    for more in kind.__subclasses__():
        yield from more.model_fields
        yield from _fields(more)


def test_every_setting_is_named_in_the_docs() -> None:
    folder = Path(prism_assets.__file__).parent.parent
    pages = "".join(page.read_text() for page in (folder / "README.md", *(folder / "docs").glob("*.md")))
    named = set(re.findall(r"PRISM_[A-Z0-9_]+", pages))
    assert {f"PRISM_{field.upper()}" for field in _fields()} - named == set()


def test_spark_takes_any_setting_from_json_or_from_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRISM_SPARK_CONFIG", '{"spark.executor.memory": "4g", "spark.speculation": true}')
    assert load(EngineSettings).spark_config == {"spark.executor.memory": "4g", "spark.speculation": "true"}
    monkeypatch.delenv("PRISM_SPARK_CONFIG")
    (tmp_path / "prism.toml").write_text('spark_config = {"spark.task.cpus" = 2}\n')
    assert load(EngineSettings).spark_config == {"spark.task.cpus": "2"}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("spark.executor.memory=4g", "PRISM_SPARK_CONFIG: must be a JSON object with names of Spark"),
        ('{"executor.memory": "4g"}', "PRISM_SPARK_CONFIG: must be a JSON object with names of Spark"),
        ('{"spark.master": "yarn"}', "PRISM_SPARK_CONFIG: must not name spark.master"),
    ],
)
def test_a_wrong_setting_of_spark_is_refused(config: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISM_SPARK_CONFIG", config)
    with pytest.raises(SettingsError, match=sentence):
        load(EngineSettings)
