"""JSON as golden files hold it: one value a line, so that git shows which one differs."""

import json


def json_text(value):
    """The text of a golden JSON file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
