"""Recipes: each is a table file that makes rows of the vendor's logs, and reads every key of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName
from prism_assets.drafting.draft import recipe_file
from prism_assets.drafting.recipes import recipe_names, recipe_text
from prism_assets.drafting.trial import Trial, read_table, try_table
from prism_assets.objectstore.config import StoreConfig
from prism_assets_tests.builders import utc
from prism_assets_tests.drafting import recipe_samples as samples

NOW = utc("2026-03-01T12:00")
NOWHERE = StoreConfig(local_root="/nowhere")


@dataclass(frozen=True)
class Made:
    """What a recipe makes of its sample."""

    sample: Callable[[], bytes]
    rows: int
    last: dict[str, Any]
    """Some values of the last row."""
    filtered: int = 0


RECIPES = {
    "alb": Made(
        samples.alb,
        2,
        {
            "time": "2026-03-01T10:00:23.000Z",
            "target": None,
            "target_processing_time": -1.0,
            "elb_status_code": 400,
            "target_status_code": None,
            "user_agent": None,
            "classification_reason": "BadUri",
            "conn_trace_id": None,
        },
    ),
    "nginx": Made(
        samples.nginx,
        2,
        {
            "time": "2026-03-01T10:00:23.000Z",
            "remote_addr": "2001:db8::7",
            "remote_user": "ann",
            "status": 400,
            "http_referer": None,
            "method": None,
        },
    ),
    "vpc-flow-logs": Made(
        samples.vpc_flow_logs,
        2,
        {"start_time": "2026-03-01T10:01:00.000Z", "source_address": None, "bytes": None, "log_status": "NODATA"},
    ),
    "cloudtrail": Made(
        samples.cloudtrail,
        2,
        {
            "event_time": "2026-03-01T10:00:22.000Z",
            "error_code": "AccessDenied",
            "request_parameters": '{"bucketName":"b","key":"k/1"}',
            "resources": [
                {"arn": "arn:aws:s3:::b/k/1", "account_id": None, "type": "AWS::S3::Object"},
                {"arn": "arn:aws:s3:::b", "account_id": "111122223333", "type": "AWS::S3::Bucket"},
            ],
        },
    ),
    "cloudwatch-logs": Made(
        samples.cloudwatch_logs,
        2,
        {
            "time": "2026-03-01T10:00:22.124Z",
            "message": "START RequestId: 1\n",
            "log_group": "/aws/lambda/shop",
            "subscription_filters": ["all"],
        },
        filtered=1,
    ),
    "otlp-logs": Made(
        samples.otlp_logs,
        4,
        {
            "time": "2026-03-01T10:00:23.000Z",
            "message": None,
            "body": '{"intValue":"7"}',
            "scope_name": "pay",
        },
    ),
    "kubernetes-audit": Made(
        samples.kubernetes_audit,
        2,
        {
            "stage_time": "2026-03-01T10:00:22.130Z",
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
            "source_ips": ["10.0.0.7"],
        },
    ),
    "github-webhooks": Made(
        samples.github_webhooks,
        2,
        {
            "time": "2026-03-01T10:00:31.000Z",
            "action": "closed",
            "repository": "octocat/Hello-World",
            "sender": "octocat",
            "number": 42,
            "merged": True,
            "merged_at": "2026-03-01T10:00:30.000Z",
        },
    ),
}


def tried(root: Path, recipe: str, content: bytes) -> Trial:
    """Writes the table file of a recipe, and tries it on an object."""
    sample = root / "sample"
    sample.write_bytes(content)
    written = recipe_file("log.vendor", recipe, url="s3://staging/vendor/", folder=root / "tables")
    assert written.path is not None
    return try_table(NOWHERE, read_table(written.path), str(sample), now=NOW, rows=100)


def test_every_recipe_has_a_sample() -> None:
    assert recipe_names() == sorted(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_makes_rows_of_the_logs_of_its_vendor(tmp_path: Path, recipe: str) -> None:
    made = RECIPES[recipe]
    trial = tried(tmp_path, recipe, made.sample())
    assert (trial.rows, trial.filtered, trial.quarantined, trial.problem) == (made.rows, made.filtered, {}, None)
    assert (trial.value_errors, trial.undefined) == ((), {})
    last = trial.rows_shown[-1].values
    assert {name: last[name] for name in made.last} == made.last


def test_structs_of_cloudtrail_reach_down_to_the_issuer_of_a_session(tmp_path: Path) -> None:
    row = tried(tmp_path, "cloudtrail", samples.cloudtrail()).rows_shown[0].values
    context = row["user_identity"]["session_context"]
    assert context["session_issuer"]["user_name"] == "deploy"
    assert context["attributes"] == {"creation_date": "2026-03-01T09:55:00.000Z", "mfa_authenticated": False}


def test_attributes_of_otlp_keep_their_kinds_and_those_of_the_resource_stand_beside(tmp_path: Path) -> None:
    row = tried(tmp_path, "otlp-logs", samples.otlp_logs()).rows_shown[0].values
    first, second = row["attributes"]
    assert (first["key"], first["value"]["int_value"]) == ("http.response.status_code", 200)
    assert second["value"]["array_value"] == '{"values":[{"stringValue":"a"}]}'
    assert [item["value"]["string_value"] for item in row["resource_attributes"]] == ["shop"]


def test_requests_of_access_logs_are_divided(tmp_path: Path) -> None:
    row = tried(tmp_path, "alb", samples.alb()).rows_shown[0].values
    assert (row["method"], row["host"], row["user_agent"]) == ("GET", "shop.example", 'curl/8.5 ("x")')
    assert row["request_creation_time"] == "2026-03-01T10:00:22.137Z"
    (tmp_path / "tables" / "log" / "vendor.yaml").unlink()
    row = tried(tmp_path, "nginx", samples.nginx()).rows_shown[0].values
    assert (row["method"], row["path"], row["body_bytes_sent"]) == ("GET", "/buy", 612)


def test_objects_that_requests_to_kubernetes_carry_are_hidden_from_people(tmp_path: Path) -> None:
    table = read_table(
        recipe_file("log.audit", "kubernetes-audit", url="s3://staging/a/", folder=tmp_path).path or tmp_path
    )
    assert {column.name for column in table.columns if column.hides} == {"request_object", "response_object"}


def test_names_and_urls_with_any_characters_stand_in_a_recipe(tmp_path: Path) -> None:
    for recipe in recipe_names():
        text = recipe_text(recipe, TableName("log", "yes"), "s3://staging/a #b/")
        path = tmp_path / f"{recipe}.yaml"
        path.write_text(text)
        table = read_table(path)
        assert (str(table.name), table.streams[0].key_prefix) == ("log.yes", "a #b/")


def test_an_unknown_recipe_and_a_missing_url_are_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"--recipe must be one of .*did you mean cloudtrail"):
        recipe_file("log.trail", "cloud-trail", url="s3://staging/t/", folder=tmp_path)
    with pytest.raises(WrongUse, match=r"such as --url s3://BUCKET/trail/; nothing was written"):
        recipe_file("log.trail", "cloudtrail", url=None, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
