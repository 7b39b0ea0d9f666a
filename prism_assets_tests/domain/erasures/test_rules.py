"""The name of an erasure: the same for the same rows."""

from __future__ import annotations

import json
from dataclasses import replace

from prism_assets.domain.erasures.rules import ErasureRule, digest_of
from prism_assets.domain.names import TableName
from prism_assets_tests.kernels.builders import a_column

TABLE = TableName("log", "events")


def a_rule(predicate: str, *column_ids: int) -> ErasureRule:
    columns = [a_column(f"c{number}", "bigint", number).to_document() for number in column_ids]
    documents = tuple(json.dumps(column, sort_keys=True) for column in columns)
    return ErasureRule(erasure_id=0, predicate=predicate, columns=documents)


def test_the_same_words_of_the_same_columns_are_the_same_erasure() -> None:
    rule = a_rule("user_id = 42", 2, 3)
    found = digest_of(TABLE, rule, "key")
    assert found == digest_of(TABLE, replace(a_rule(" user_id = 42\n", 3, 2), erasure_id=7), "key")
    others = {
        digest_of(TABLE, a_rule("user_id = 42", 2, 9), "key"),
        digest_of(TABLE, a_rule("user_id = 43", 2, 3), "key"),
        digest_of(TableName("log", "others"), rule, "key"),
        digest_of(TABLE, rule, "another"),
    }
    assert found not in others
    assert len(others) == 4
