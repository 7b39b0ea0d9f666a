"""All settings, from defs.yaml, the environment or `prism.toml`. If none names a database, from the local stack.

Reading settings reports all mistakes at once. It opens no connection, unless a setting names a secret of AWS Secrets
Manager: see `secret_references.py`. AWS credentials are no settings: boto3 and the object store read them from the
environment. The local stack's settings put its credentials there.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from prism_assets.domain.errors import SettingsError
from prism_assets.domain.service_limits import LONGEST_AFFIX
from prism_assets.engine.sessions import SUBMITTED
from prism_assets.local_stack import local_home, read_env_file
from prism_assets.objectstore.config import StoreConfig
from prism_assets.project_settings import given_settings
from prism_assets.secret_references import TOKEN_OF_RDS, secret_at

IN_PROCESS = "in-process"
_REMOTES = ("sc://", "local", "spark://", "yarn", "k8s://")


def _at_its_place(value: Any) -> Any:
    """Returns the secret where a setting only names its place."""
    try:
        return secret_at(value) if isinstance(value, str) else value
    except SettingsError as error:
        raise ValueError(str(error)) from None


Secret = Annotated[SecretStr, BeforeValidator(_at_its_place)]
"""A secret: the setting holds it, or names its place."""


class PrismSettings(BaseSettings):
    """The sources of settings. Every field is the environment variable `PRISM_<FIELD>` or a key of prism.toml."""

    model_config = SettingsConfigDict(env_prefix="PRISM_", toml_file="prism.toml", extra="ignore", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then defs.yaml of a Dagster project, then the environment, then prism.toml."""
        given = {name: value for name, value in given_settings().items() if name in settings_cls.model_fields}
        project = InitSettingsSource(settings_cls, given)
        return init_settings, project, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("s3_endpoint", "glue_endpoint", "sqs_endpoint", check_fields=False)
    @classmethod
    def _endpoint_is_address(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith(("http://", "https://")) or not _has_host(value)):
            raise ValueError("must look like http://host:port, or be unset for AWS")
        return value


class ReaderSettings(PrismSettings):
    """Settings for a catalog reader, who needs neither PostgreSQL nor write permission."""

    s3_endpoint: str | None = Field(default=None, description="address of an S3 server; AWS by default")
    local_root: str | None = Field(default=None, description="folder that holds buckets as folders, in place of S3")
    glue_endpoint: str | None = Field(default=None, description="address of a Glue server; AWS by default")
    glue_database_prefix: str = Field(
        default="", max_length=LONGEST_AFFIX, description="text before the schema name in Glue"
    )
    glue_database_suffix: str = Field(
        default="", max_length=LONGEST_AFFIX, description="text after the schema name in Glue"
    )

    @property
    def region(self) -> str:
        """The AWS region from the environment, as AWS tools read it."""
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"

    @property
    def store(self) -> StoreConfig:
        """The object store's address for reading, without credentials."""
        return StoreConfig(endpoint=self.s3_endpoint, region=self.region, local_root=self.local_root)


class DiscoverSettings(PrismSettings):
    """How new objects are discovered: by notifications if there are queues, and always by listings."""

    sqs_endpoint: str | None = Field(default=None, description="address of an SQS server; AWS by default")
    sqs_queue_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="queues with events of the staging buckets, separated by commas"
    )
    sqs_wait_seconds: float = Field(default=0, ge=0, le=20, description="seconds that a call waits for messages")
    sqs_listing_seconds: float = Field(
        default=600, ge=0, description="seconds between listings of a stream, with queues"
    )
    backlog_objects: int = Field(
        default=100_000, ge=1, description="pending objects above which messages stay in the queue"
    )
    scan_overlap_seconds: float = Field(
        default=3_600, ge=0, description="seconds that a listing goes back for late keys"
    )
    full_scan_seconds: float = Field(default=3_600, ge=0, description="seconds between complete listings of a stream")

    @field_validator("sqs_queue_urls", mode="before")
    @classmethod
    def _queues_are_listed(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise ValueError("must be addresses of queues, separated by commas")
        urls = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
        if not all(_is_queue(url) for url in urls):
            raise ValueError(
                "must look like https://sqs.REGION.amazonaws.com/ACCOUNT/NAME, several separated by commas"
            )
        return urls


class StreamSettings(PrismSettings):
    """The limits of a batch, and when a staging object is given up.

    `domain/batch_size.py` sizes a batch by the engine, within these limits. Its results stay in the driver until one
    transaction commits them: 10,000 objects take 10 MB, with 500 undefined fields each about 500 MB.
    """

    stream_max_objects: int = Field(default=10_000, ge=1, description="staging objects of the largest batch")
    stream_max_bytes: int = Field(default=10 << 30, ge=1, description="bytes of staging objects of the largest batch")
    max_attempts: int = Field(default=5, ge=1, description="tries of a staging object before it is given up")
    max_refusals: int = Field(default=10, ge=1, description="tries of an object that the store refuses")


class MergeSettings(PrismSettings):
    """How many merges run together, and when a merge is parked."""

    merge_max_jobs: int = Field(default=200, ge=1, description="merge jobs of the largest Spark job")
    merge_max_attempts: int = Field(default=10, ge=1, description="tries of one merge job before it is parked")


class FoldSettings(PrismSettings):
    """The size of one fold of a join table."""

    fold_max_objects: int = Field(default=2_000, ge=1, description="objects of changes in one fold")
    fold_max_bytes: int = Field(default=1 << 28, ge=1, description="bytes of changes in one fold")


class CatalogSettings(PrismSettings):
    """How often the catalog is compared with the records, and how many rows Dagster shows."""

    catalog_compare_seconds: float = Field(
        default=3_600, ge=0, description="seconds between full comparisons of a table with Glue"
    )
    sample_rows: int = Field(
        default=5, ge=0, le=20, description="rows of the newest day in the asset `_catalog`; 0 for none"
    )
    expire_max_days: int = Field(default=31, ge=1, description="days of a table that one catalog run may expire")


SYMLINK_SUFFIX = "_symlink"
"""Suffix of the Glue database with symlinks, beside the one with manifests."""


class IcebergSettings(PrismSettings):
    """The catalog of tables with `iceberg:`."""

    iceberg_catalog: Literal["sql", "glue", "rest"] = Field(
        default="sql", description="catalog of Iceberg tables: sql (in PostgreSQL), glue or rest"
    )
    iceberg_rest_uri: str | None = Field(default=None, validate_default=True, description="address of a REST catalog")
    iceberg_rest_warehouse: str | None = Field(default=None, description="warehouse of a REST catalog")
    iceberg_rest_credential: Secret | None = Field(
        default=None, description="client_id:client_secret for a REST catalog"
    )
    iceberg_rest_token: Secret | None = Field(default=None, description="token for a REST catalog")
    iceberg_database_suffix: str = Field(
        default="_iceberg",
        min_length=1,
        pattern=r"^[a-z0-9_]+$",
        description="text after the schema name in the Iceberg catalog",
    )

    @field_validator("iceberg_rest_uri")
    @classmethod
    def _rest_has_an_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("iceberg_catalog") == "rest":
            raise ValueError("must be set if PRISM_ICEBERG_CATALOG is rest")
        if value is not None and (not value.startswith(("http://", "https://")) or not _has_host(value)):
            raise ValueError("must look like https://host/path")
        return value


class DuckLakeSettings(PrismSettings):
    """Whether and where DuckLake clients reach PostgreSQL. Views there are their catalog."""

    ducklake: bool = Field(default=False, description="true where readers may connect to PostgreSQL")
    ducklake_url: Secret | None = Field(
        default=None,
        description="PostgreSQL for readers: postgresql://prism_reader@host:5432/db",
    )

    @field_validator("ducklake_url")
    @classmethod
    def _reader_url_is_postgresql(cls, value: SecretStr | None) -> SecretStr | None:
        url = value.get_secret_value() if value else ""
        if value and not (url.startswith("postgresql://") and _has_host(url)):
            raise ValueError("must look like postgresql://prism_reader@host:5432/database")
        return value


class GcSettings(PrismSettings):
    """What garbage collection keeps, and how much one run may delete."""

    gc_age_hours: float = Field(default=72, ge=1, description="age below which nothing is deleted")
    gc_reader_lease_hours: float = Field(
        default=4, ge=1, description="hours for which replaced objects stay for readers"
    )
    gc_max_fraction: float = Field(
        default=0.1, gt=0, le=1, description="share of a table's objects and bytes that one run may delete"
    )
    quarantine_days: int = Field(default=30, ge=1, description="days before quarantined lines are deleted")
    gc_log_days: int = Field(default=365, ge=1, description="days before the log of deletions is forgotten")
    metadata_days: int = Field(
        default=365,
        ge=15,  # queues keep messages for fourteen days, and one of an object that is forgotten makes a new one
        description="days after a day expired until its metadata leaves PostgreSQL",
    )
    archive_after_days: int = Field(
        default=365,
        ge=31,  # longer than lines stay in quarantine by default; gc waits for longer ones, too
        description="days after its last merge until the metadata of a kept day leaves PostgreSQL",
    )


class EngineSettings(PrismSettings):
    """Where tasks run, and the size of a task."""

    spark_remote: Annotated[str, BeforeValidator(_at_its_place)] = Field(
        default="local[*]",
        repr=False,
        description="sc://host:port, local[*], spark://…, yarn, k8s://…, submitted or in-process",
    )
    spark_config: Annotated[dict[str, str], NoDecode] = Field(
        default={}, repr=False, description='further settings of Spark, such as {"spark.executor.memory": "4g"}'
    )
    task_bytes: int = Field(default=16 << 20, ge=1, description="bytes of input of one Spark task")

    @field_validator("spark_config", mode="before")
    @classmethod
    def _config_is_object(cls, value: Any) -> Any:
        with suppress(json.JSONDecodeError):
            value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, dict) or not all(str(name).startswith("spark.") for name in value):
            raise ValueError('must be a JSON object with names of Spark, such as {"spark.executor.memory": "4g"}')
        if reserved := sorted({"spark.remote", "spark.master"} & value.keys()):
            raise ValueError(f"must not name {reserved[0]}: the setting spark_remote says where Spark is")
        return {name: str(item).lower() if isinstance(item, bool) else str(item) for name, item in value.items()}

    @field_validator("spark_remote")
    @classmethod
    def _remote_is_known(cls, value: str) -> str:
        if value not in (SUBMITTED, IN_PROCESS) and not value.startswith(_REMOTES):
            raise ValueError("must be sc://host:port, local[*], spark://…, yarn, k8s://…, submitted or in-process")
        return value


class Settings(
    ReaderSettings,
    DiscoverSettings,
    StreamSettings,
    MergeSettings,
    FoldSettings,
    CatalogSettings,
    IcebergSettings,
    DuckLakeSettings,
    GcSettings,
    EngineSettings,
):
    """All settings of a working process: database, lake, and every stage."""

    database_password: SecretStr | None = Field(
        default=None, description="password for PRISM_DATABASE_URL: a reference, or aws-rds-iam for tokens of RDS"
    )
    database_url: Secret = Field(description="postgresql+psycopg://user:password@host:port/database")
    bucket: str = Field(min_length=3, description="bucket that holds the lake")
    prefix: str = Field(default="", description="prefix of all keys in the bucket, empty or ending with /")
    tables_dir: Path = Field(default=Path("tables"), description="folder of table files")
    object_tags: bool = Field(default=True, description="objects get the tag PrismObjectType")
    lease_seconds: float = Field(default=60, ge=1, description="seconds after which a silent worker loses its work")

    @field_validator("prefix")
    @classmethod
    def _prefix_is_folder(cls, value: str) -> str:
        if value and (not value.endswith("/") or value.startswith("/")):
            raise ValueError("must be empty or look like folder/")
        return value

    @field_validator("database_password")
    @classmethod
    def _password_is_found(cls, value: SecretStr | None) -> SecretStr | None:
        """Keeps a reference, because each session looks the password up again: passwords change, tokens end."""
        if value is not None and value.get_secret_value() != TOKEN_OF_RDS:
            _at_its_place(value.get_secret_value())
        return value

    @field_validator("database_url")
    @classmethod
    def _database_is_postgresql(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        url = value.get_secret_value()
        if not url.startswith(("postgresql://", "postgresql+psycopg://")) or not _has_host(url):
            raise ValueError("must look like postgresql+psycopg://user:password@host:5432/database")
        if password := info.data.get("database_password"):
            url = _with_password(url, password.get_secret_value())
        return SecretStr(url.replace("postgresql://", "postgresql+psycopg://", 1))

    @property
    def store(self) -> StoreConfig:
        """The object store's address, without credentials."""
        return StoreConfig(
            endpoint=self.s3_endpoint,
            region=self.region,
            local_root=self.local_root,
            object_tags=self.object_tags and self.local_root is None,
        )


def _with_password(url: str, password: str) -> str:
    """Returns the URL with a password, or with the reference to one, which `prism_assets/postgres.py` follows."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if not user or ":" in user or "password" in parse_qs(parts.query):
        raise ValueError("must name the user, and no password, where PRISM_DATABASE_PASSWORD is set")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


def _is_queue(url: str) -> bool:
    """Whether a URL names a queue. URLs with a password are refused, because messages show the URL."""
    if not url.startswith(("https://", "http://")) or not _has_host(url) or "@" in url:
        return False
    return bool(urlsplit(url).path.strip("/"))


class AlertSettings(PrismSettings):
    """Where alerts about failed runs and tables go. Loaded alone, so alerts work even if other settings are wrong."""

    alert: Secret = Field(default=SecretStr("log"), description="log, webhook:https://… or sns:arn:aws:sns:…")
    sns_endpoint: str | None = Field(default=None, description="address of an SNS server; AWS by default")
    dagster_url: str | None = Field(default=None, description="address of Dagster's web server, for links in alerts")

    @field_validator("alert")
    @classmethod
    def _alert_is_known(cls, value: SecretStr) -> SecretStr:
        kind, _, target = value.get_secret_value().partition(":")
        valid = {
            "log": not target,
            "webhook": target.startswith(("http://", "https://")) and _has_host(target),
            "sns": target.startswith("arn:") and target.count(":") == 5,
        }
        if not valid.get(kind):
            raise ValueError("must be log, webhook:https://host/… or sns:arn:aws:sns:region:account:topic")
        return value

    @field_validator("dagster_url")
    @classmethod
    def _link_has_no_secret(cls, value: str | None) -> str | None:
        if value and (not value.startswith(("http://", "https://")) or not _has_host(value) or "@" in value):
            raise ValueError("must look like https://host:3000, without user and password")
        return value.rstrip("/") if value else None


class LocationSettings(PrismSettings):
    """The settings of the definitions: `PRISM_TABLES_DIR`, `PRISM_STRICT_TABLES`, `PRISM_FIRST_DAY`,
    `PRISM_SENSOR_SECONDS`, and `PRISM_SOURCE_URL` for links.

    Loaded alone, so the definitions load before the platform is set up.
    """

    tables_dir: Path = Field(default=Path("tables"), description="folder of table files")
    strict_tables: bool = Field(default=False, description="one wrong table file stops all, for CI")
    first_day: date = Field(default=date(2026, 1, 1), description="first day that Dagster shows")
    sensor_seconds: int = Field(default=10, ge=1, description="seconds between ticks of sensors")
    source_url: str | None = Field(
        default=None, description="address for links, such as https://github.com/o/r/blob/main"
    )


class MaintenanceSettings(PrismSettings):
    """How long Dagster runs are kept (`PRISM_RUN_RETENTION_DAYS`), and the time limit of pruning
    (`PRISM_PRUNE_SECONDS`).
    """

    run_retention_days: int = Field(default=14, ge=1, description="days before Dagster's runs are deleted")
    prune_seconds: int = Field(default=1_800, ge=1, description="seconds that one maintenance may spend on runs")


class LogSettings(PrismSettings):
    """The form of log lines. Loaded alone, because lines come before all other settings are read."""

    log_format: Literal["text", "json"] = Field(default="text", description="json: one JSON object a line")


def load_alert_settings(**overrides: Any) -> AlertSettings:
    """Loads the alert settings alone. Raises SettingsError with all wrong values."""
    return load(AlertSettings, **overrides)


def _has_host(url: str) -> bool:
    """Whether an address names a host, and its port, if any, is a number."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def load_settings(**overrides: Any) -> Settings:
    """Loads all settings. Raises SettingsError with everything missing or malformed.

    The local stack's `.prism/env` is used only if nothing else names a database. Two halves would fit no installation.
    """
    if "database_url" not in overrides:
        _take_local_environment()
    settings = load(Settings, **overrides)
    refuse_unknown("prism.toml has unknown keys", _toml_keys())
    return settings


def load_reader_settings() -> ReaderSettings:
    """Loads a reader's settings and ignores all others. Raises SettingsError with all wrong values."""
    _take_local_environment()
    return load(ReaderSettings)


class _DatabaseSettings(PrismSettings):
    """Whether a database is named, for processes that can work without one."""

    database_url: SecretStr | None = None


def has_database() -> bool:
    """Whether a database is named, correctly or not."""
    _take_local_environment()
    return load(_DatabaseSettings).database_url is not None


_Loaded = TypeVar("_Loaded", bound=PrismSettings)


def load(kind: type[_Loaded], **overrides: Any) -> _Loaded:
    """Loads settings of one kind. Raises SettingsError with everything missing or malformed."""
    try:
        return kind(**overrides)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None
    except ValueError as error:
        raise _unreadable(error) from None


def refuse_unknown(what: str, keys: Collection[str]) -> None:
    """Raises SettingsError for names of no setting. A typo would silently leave the default."""
    names = {name for kind in _kinds(PrismSettings) for name in kind.model_fields}
    unknown = [key for key in keys if key not in names]
    if unknown:
        lines = [f"  {key}: there is no such setting{_nearest(key, names)}" for key in unknown]
        raise SettingsError("\n".join([f"{what}:", *lines]))


def _kinds(kind: type[PrismSettings]) -> Iterator[type[PrismSettings]]:
    for more in kind.__subclasses__():
        yield more
        yield from _kinds(more)


def _nearest(key: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _take_local_environment() -> None:
    """Copies the local stack's `.prism/env` into the environment, unless defs.yaml, the environment or prism.toml names
    a database.
    """
    if "PRISM_DATABASE_URL" in os.environ or "database_url" in {*given_settings(), *_toml_keys()}:
        return
    for key, value in read_env_file(local_home() / "env").items():
        os.environ.setdefault(key, value)


def _toml_keys() -> Collection[str]:
    try:
        return TomlConfigSettingsSource(PrismSettings).toml_data.keys()
    except ValueError as error:
        raise _unreadable(error) from None


def _unreadable(error: ValueError) -> SettingsError:
    """Returns the error for an unreadable prism.toml. tomllib's message contains no value."""
    return SettingsError(f"prism.toml cannot be read: {error}")


def _explain(error: ValidationError) -> str:
    lines = [
        f"  PRISM_{str(problem['loc'][0]).upper()}: "
        + ("is not set" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, "))
        for problem in error.errors(include_input=False, include_url=False)
    ]
    hint = "Start the local stack with `prism local up`, or set them in the environment or prism.toml."
    return "\n".join(["some settings are missing or wrong:", *lines, hint])
