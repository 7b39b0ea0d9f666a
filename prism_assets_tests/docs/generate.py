"""Writes the generated parts of the docs: settings, table files, the picture, llms.txt, results of benchmarks.

`scripts/docs` runs this module; a test compares its output with the committed files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from bench import bars
from bench.chart import chart
from bench.overview import load_results, table_of_figures, table_of_origins, table_of_results
from bench.sizing import sizing_table, slopes_table
from prism_assets import settings as all_settings
from prism_assets.domain.metrics import METRICS
from prism_assets.domain.tables.file_keys import (
    KEYS,
    Amount,
    Choice,
    Duration,
    Expression,
    Flag,
    Form,
    NamedSections,
    Part,
    Parts,
    Section,
    Sections,
    Size,
    TableFileKey,
    Text,
    Texts,
    Whole,
)
from prism_assets.domain.tables.file_schema import table_file_schema
from prism_assets.settings import PrismSettings
from prism_assets_tests.docs.picture import DARK, LIGHT, picture
from prism_assets_tests.metrics.dashboard import dashboard

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
DOCS = Path(__file__).parents[2] / "docs"
RULES = DOCS.parent / "deploy" / "prometheus" / "prism.rules.yaml"
DASHBOARD = DOCS.parent / "deploy" / "grafana" / "prism.json"
RESULTS = DOCS.parent / "bench" / "results" / "README.md"
_PARTS: tuple[tuple[str, tuple[type[PrismSettings], ...]], ...] = (
    ("Database and lake", (all_settings.Settings,)),
    ("Readers and stores", (all_settings.ReaderSettings,)),
    ("Engine", (all_settings.EngineSettings,)),
    ("Discovery", (all_settings.DiscoverSettings,)),
    ("Stream", (all_settings.StreamSettings,)),
    ("Merge", (all_settings.MergeSettings,)),
    ("Folds of join tables", (all_settings.FoldSettings,)),
    ("Catalog", (all_settings.CatalogSettings,)),
    ("Iceberg", (all_settings.IcebergSettings,)),
    ("DuckLake", (all_settings.DuckLakeSettings,)),
    ("Garbage collection", (all_settings.GcSettings,)),
    ("Dagster", (all_settings.LocationSettings, all_settings.MaintenanceSettings)),
    ("Alerts", (all_settings.AlertSettings,)),
    ("Logs", (all_settings.LogSettings,)),
)
_INTRODUCTION = """\
# Settings

<!-- Generated from prism_assets/settings.py by scripts/docs. -->

Settings come from the environment, or else from `prism.toml` in the working directory, without the prefix and in lower
case. `prism` lists all missing and wrong settings at once. The local stack writes its settings to `.prism/env`, and
prism reads them there if neither the environment nor `prism.toml` names a database.

```toml
bucket = "our-logs"
prefix = "lake/"
glue_database_suffix = "_lake"
spark_remote = "sc://spark-connect.internal:15002"
```

Credentials and the region of AWS are read as every AWS client reads them (`AWS_REGION`, roles, profiles). `prism query`
and `prism files` need Glue and S3 only.

## Secrets

A secret belongs neither in `prism.toml` nor in a command. Its setting names the place of the secret instead:

| value | secret |
|---|---|
| `file:/run/secrets/name` | content of the file, without line breaks at its end |
| `env:NAME` | value of another variable |
| `aws-secretsmanager:NAME-OR-ARN` | text of a secret of AWS Secrets Manager |
| `aws-secretsmanager:NAME-OR-ARN#key` | one value of its JSON object |
| `aws-rds-iam` | a token of RDS: only for [passwords of databases](postgresql.md#password) |
| any other text | the secret itself |

These settings may hold a reference: `PRISM_DATABASE_URL`, `PRISM_DATABASE_PASSWORD`, `PRISM_DAGSTER_PG_PASSWORD`,
`PRISM_DUCKLAKE_URL`, `PRISM_ICEBERG_REST_CREDENTIAL`, `PRISM_ICEBERG_REST_TOKEN`, `PRISM_ALERT`, `PRISM_SPARK_REMOTE`,
`PRISM_SECRET_<NAME>`, and passwords and keys of [Kafka](kafka.md#connections). An answer of Secrets Manager serves a
process for five minutes. A secret that begins like a reference has to be one: put it in a variable, and name that by
`env:`. Reading from Secrets Manager needs [a right](iam.md#secrets-and-tokens); a VPC endpoint is named by boto3's
`AWS_ENDPOINT_URL_SECRETS_MANAGER`.
"""
_OTHERS = """\
## Variables that are no settings

| variable | meaning |
|---|---|
| `PRISM_SECRET_<NAME>` | secret of `pseudonym(value, 'name')`, for Spark's executors |
| `PRISM_SECRET_ERASURE` | key of the HMAC of [erasures](erase.md), for commands |
| `PRISM_DAGSTER_PG_HOST`, `_PORT`, `_USER`, `_PASSWORD`, `_DB` | Dagster's database, read by `dagster.yaml` |
| `SPARK_CONNECT_AUTHENTICATE_TOKEN` | token of Spark Connect |
| `PRISM_KAFKA_<CLUSTER>_<SETTING>` | connection to a cluster of [Kafka](kafka.md#connections), by librdkafka's names |
| `PRISM_KERNEL` | `off` leaves the [compiled kernel](deploy.md#the-compiled-kernel) out, `required` demands it |
| `PRISM_HOME` | folder of the local stack; `.prism` by default |
| `PRISM_CACHE` | folder of its jars; `~/.cache/prism_assets` by default |
| `PRISM_UI_PORT` | port of the UI that `prism-local demo` starts; 3000 by default |
"""


def generated() -> dict[Path, str]:
    """Returns every generated file with its text. For a page with a generated part, the whole page."""
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "metrics.md": _metrics_page(),
        DASHBOARD: dashboard(),
        DOCS / "table-file.md": with_part((DOCS / "table-file.md").read_text(), "keys", keys_table()),
        DOCS / "table-file.schema.json": json.dumps(table_file_schema(), indent=2) + "\n",
        DOCS / "llms.txt": llms_text(),
        DOCS / "images" / "flow-light.svg": picture(LIGHT),
        DOCS / "images" / "flow-dark.svg": picture(DARK),
        **_results(),
    }


def _metrics_page() -> str:
    """The page of metrics, with the tables of alerts and metrics."""
    page = with_part((DOCS / "metrics.md").read_text(), "alerts", _alerts_table())
    return with_part(page, "metrics", _metrics_table())


def _alerts_table() -> str:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rows = [
        f"| `{rule['alert']}` | {rule.get('for', 'at once')} | {_without_templates(rule['annotations']['summary'])} |"
        for rule in group["rules"]
    ]
    return "\n".join(["| alert | after | says |", "|---|---|---|", *rows, ""])


def _without_templates(summary: str) -> str:
    """A summary with names in place of expressions: `{{ $labels.table }}` becomes TABLE."""
    chosen = re.sub(r"\{\{ with .*?\{\{ end \}\}", "TABLE", summary)
    values = re.sub(r"\{\{ \$value[^}]*\}\}", "N", chosen)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), values)


def _metrics_table() -> str:
    rows = [
        f"| `{item.name}` | {item.kind.value} | {', '.join(item.labels)} | {item.help} |"
        for item in sorted(METRICS, key=lambda item: item.source.value)
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows, ""])


def _results() -> dict[Path, str]:
    """The pages and pictures that are made from the results of benchmarks."""
    results = load_results()
    figures = with_part((DOCS / "performance.md").read_text(), "figures", table_of_figures(results))
    sizes = with_part((DOCS / "sizing.md").read_text(), "sizes", sizing_table(results))
    return {
        RESULTS: with_part(RESULTS.read_text(), "results", table_of_results(results)),
        DOCS / "sizing.md": with_part(sizes, "slopes", slopes_table(results)),
        DOCS / "performance.md": with_part(figures, "origins", table_of_origins(results)),
        DOCS / "images" / "speed-light.svg": chart(results, bars.LIGHT),
        DOCS / "images" / "speed-dark.svg": chart(results, bars.DARK),
    }


def with_part(text: str, name: str, part: str) -> str:
    """The text with another part between `<!-- name -->` and `<!-- /name -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"there is no part {name}")
    return f"{before}{begin}{part}{end}{after}"


def settings_page() -> str:
    """The page of all settings."""
    parts = "\n".join(_settings_part(title, kinds) for title, kinds in _PARTS)
    return f"{_INTRODUCTION}\n{parts}\n{_OTHERS}"


def _settings_part(title: str, kinds: tuple[type[PrismSettings], ...]) -> str:
    fields = {name: field for kind in kinds for name, field in _own_fields(kind).items()}
    return f"## {title}\n\n| setting | default | meaning |\n|---|---|---|\n" + "".join(
        f"| `PRISM_{name.upper()}` | {_default_of(field)} | {field.description} |\n" for name, field in fields.items()
    )


def _own_fields(kind: type[PrismSettings]) -> Mapping[str, FieldInfo]:
    return {name: kind.model_fields[name] for name in kind.__annotations__ if name in kind.model_fields}


def _default_of(field: FieldInfo) -> str:
    value: Any = field.default
    if field.is_required():
        return "required"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        value = str(value).lower()
    return "none" if value is None or value in ("", ()) else f"`{value}`"


def keys_table() -> str:
    """The table of all keys of a table file."""
    rows = (
        f"| `{key.path}`{' *join*' if key.joins_only else ''} | {type_of(key.form)} | {_default(key)} "
        f"| {_example(key)} | {key.says} |\n"
        for key in KEYS
    )
    return "| key | type | default | example | meaning |\n|---|---|---|---|---|\n" + "".join(rows)


def _default(key: TableFileKey) -> str:
    if key.required:
        return "required"
    return key.otherwise or f"`{key.default}`"


def _example(key: TableFileKey) -> str:
    return f"`{key.example}`".replace("|", "\\|")


def type_of(form: Form) -> str:
    """The type of a key in a word or two."""
    match form:
        case Text():
            return "text"
        case Expression():
            return "expression"
        case Flag():
            return "true, false"
        case Whole():
            return f"{form.low:,} to {form.high:,}"
        case Amount():
            return f"{form.low:g} to {form.high:,}"
        case Size():
            return "bytes"
        case Duration():
            return ", ".join(["duration", *form.words])
        case Choice():
            return ", ".join(f"`{word}`" for word in form.words)
        case Texts():
            return "text, list" if form.or_one else "list of texts"
        case Section():
            return ", ".join([*(f"`{word}`" for word in form.words), *(["flag"] if form.or_flag else []), "mapping"])
        case Sections():
            return "list of mappings"
        case NamedSections():
            return "mappings by name"
        case Parts():
            return "list of mappings"
        case Part(or_expression=or_expression):
            return "expression, mapping" if or_expression else "mapping"


def llms_text() -> str:
    """Returns the index of the site for language models: each page with its title and first sentence."""
    lines = [
        f"- [{title}]({page}): {sentence}"
        for page in pages()
        if page != "index.md"
        for title, sentence in [_opening(page)]
    ]
    return "\n".join(["# prism_assets", "", f"> {_opening('index.md')[1]}", "", "## Pages", "", *lines, ""])


def pages() -> Iterator[str]:
    """Yields the pages of the site in order of its navigation."""
    site = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text())
    for entry in site["nav"]:
        yield from [entry] if isinstance(entry, str) else next(iter(entry.values()))


def _opening(page: str) -> tuple[str, str]:
    """Returns the title of a page and its first sentence."""
    title, *blocks = (DOCS / page).read_text().split("\n\n")
    text = " ".join(next(block for block in blocks if block[0].isalnum()).split())
    return title.removeprefix("# "), re.split(r"(?<=\.) ", _LINK.sub(r"\1", text))[0]


def all_fields() -> Iterator[str]:
    """The names of all settings on the page."""
    yield from (name for _, kinds in _PARTS for kind in kinds for name in _own_fields(kind))


def main() -> None:
    """Writes every outdated generated file."""
    for path, text in generated().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
