"""The JSON form of a verdict conforms exactly to its schema."""

import copy
import json
from pathlib import Path

import pytest

import envpack
from tests.verdicts import full_verdict

SCHEMA = json.loads((Path(envpack.__file__).parent / "verification/verdict.schema.json").read_text())
DOCUMENT = json.loads(json.dumps(full_verdict().to_json()))


@pytest.fixture(scope="module")
def validator():
    from jsonschema import Draft202012Validator  # takes seconds to import: not in every test process

    Draft202012Validator.check_schema(SCHEMA)
    return Draft202012Validator(SCHEMA)


def test_a_full_verdict_conforms_to_the_schema(validator):
    assert list(validator.iter_errors(DOCUMENT)) == []


@pytest.mark.parametrize(
    ("document", "schema"),
    [
        (DOCUMENT, SCHEMA),
        (DOCUMENT["models"][0], SCHEMA["$defs"]["model"]),
        (DOCUMENT["checks"][0], SCHEMA["$defs"]["check"]),
    ],
)
def test_documents_have_the_keys_of_the_schema(document, schema):
    assert set(document) == set(schema["properties"]) == set(schema["required"])


@pytest.mark.parametrize(
    "part", [(), ("models", 0), ("models", 0, "checks", 0), ("checks", 0), ("models", 0, "latency")]
)
def test_an_added_or_removed_key_is_rejected(part, validator):
    for change in (lambda entry: entry.update(new=1), lambda entry: entry.popitem()):
        document = copy.deepcopy(DOCUMENT)
        entry = document
        for key in part:
            entry = entry[key]
        change(entry)
        assert not validator.is_valid(document)
