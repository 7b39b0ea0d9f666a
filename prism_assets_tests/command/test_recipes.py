"""The commands and queries of the page on recipes, on logs in the shape of each vendor."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from prism_assets_tests.command.prism import Prism
from prism_assets_tests.docs.generate import DOCS
from prism_assets_tests.drafting.test_recipes import RECIPES

_SNIPPET = re.compile(r"^```sh\n(prism table init (?P<table>\S+) --recipe (?P<recipe>\S+) .*?)^```", re.DOTALL | re.M)
ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "cloudtrail": [("arn:aws:sts::111122223333:assumed-role/deploy/session", 1)],
    "cloudwatch-logs": [("/aws/lambda/shop", 2)],
    "alb": [(200, 1), (400, 1)],
    "nginx": [(200, 1), (400, 1)],
    "vpc-flow-logs": [(22, 4249)],
    "github-webhooks": [("octocat/Hello-World", 1)],
    "kubernetes-audit": [("system:serviceaccount:shop:api", "get", "secrets", 2)],
    "otlp-logs": [("shop", 4)],
}


def sections() -> dict[str, str]:
    """Returns the commands of each recipe's section."""
    page = (DOCS / "recipes.md").read_text()
    found = [match for match in _SNIPPET.finditer(page) if "prism query" in match[1]]
    return {match["recipe"]: match[1] for match in found}


def test_each_section_of_the_page_has_an_answer_here() -> None:
    assert sorted(sections()) == sorted(ANSWERS) == sorted(RECIPES)


@pytest.mark.parametrize("recipe", ANSWERS)
def test_the_query_of_a_section_answers_after_its_commands(prism: Prism, recipe: str) -> None:
    world = prism.world
    init, query = (shlex.split(command) for command in re.split(r"\n(?=prism )", sections()[recipe].strip()))
    table = init[3]
    prism.ok(*init[1:6], "--url", f"s3://staging/{recipe}/")
    file = Path(world.settings.tables_dir, *table.split(".")).with_suffix(".yaml")
    file.write_text(f"{file.read_text()}accept: {{past_days: 3650}}\n")
    prism.ok("table", "apply")
    world.drop([], stream=recipe, body=RECIPES[recipe].sample())
    prism.ok("run", "--until-idle")
    assert sorted(world.query(query[2]), key=repr) == sorted(ANSWERS[recipe], key=repr)
