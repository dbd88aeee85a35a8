"""Every key of a JSON document is named where its command is described."""

import json
import re

from tests.unit.docs.documents import CHECKOUT, read

GOLDEN = CHECKOUT / "tests/golden/files"
SECTION = re.compile(r"^## envpack (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FOREIGN = ("job", "jobs")  # objects of Kubernetes


def keys(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key not in FOREIGN:
                yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_key_is_described():
    page = read("docs/reference/command-line.md")
    described = {command: text + read("docs/reference/json.md") for command, text in SECTION.findall(page)}
    described["verify"] += read("envpack/verification/verdict.schema.json")
    files = [file for folder in ("json", "programs") for file in (GOLDEN / folder).glob("*.json")]
    entries = [entry for file in files for entry in json.loads(file.read_text())]
    entries = [entry for entry in entries if isinstance(entry, dict) and entry.get("document")]
    documents = [(entry["command"].split()[0], entry["document"]) for entry in entries]
    assert len(documents) > 40
    missing = {
        (command, key)
        for command, document in documents
        for key in keys(document)
        if not re.search(rf'[`"]{re.escape(key)}[`"]', described[command])
    }
    assert missing == set(), "name each key in its command's section of command-line.md, in json.md or in the schema"
