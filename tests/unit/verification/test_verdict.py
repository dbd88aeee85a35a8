"""The JSON of a verdict is what its schema says, no more and no less."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

import envpack
from tests.verdicts import full_verdict

SCHEMA = json.loads((Path(envpack.__file__).parent / "verification/verdict.schema.json").read_text())
DOCUMENT = json.loads(json.dumps(full_verdict().to_json()))


def test_a_full_verdict_is_as_the_schema_says():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(DOCUMENT, SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "part", [(), ("models", 0), ("models", 0, "checks", 0), ("checks", 0), ("models", 0, "latency")]
)
def test_a_key_more_or_less_is_noticed(part):
    for change in (lambda entry: entry.update(new=1), lambda entry: entry.popitem()):
        document = copy.deepcopy(DOCUMENT)
        entry = document
        for key in part:
            entry = entry[key]
        change(entry)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
