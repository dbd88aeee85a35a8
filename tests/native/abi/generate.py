"""From layouts.json: C++ that checks stub_src/abi against it, or that the tests' peer looks layouts up in.

    python3 generate.py checks 24.10 24.11 > checks.cc     static assertions for these releases
    python3 generate.py tables > layouts_data.h            all of the data, as tables

layouts.json holds what the two processes must agree on, by the first release of which it is true: offsets of every
field in bytes, with sizes of the records, as x86-64 compilers lay them out; numbers of commands; how many arguments a
stub is given.
"""

import itertools
import json
import sys
from pathlib import Path

FACTS = json.loads(Path(__file__).with_name("layouts.json").read_text(encoding="utf-8"))


def number(release):
    return int(release.replace(".", ""))


def at(steps, release):
    """What holds in a release, or None if it has no such thing yet."""
    found = None
    for first, value in steps.items():
        if number(first) <= number(release):
            found = value
    return found


def varies(steps):
    """Whether releases lay the record out differently, rather than adding fields where nothing was."""
    layouts = list(steps.values())
    return any(
        later["size"] != earlier["size"] or not earlier["fields"].items() <= later["fields"].items()
        for earlier, later in itertools.pairwise(layouts)
    )


def type_of(record, steps, release):
    if record == "Queue":
        return "envpack::shm::QueueRecord"
    return f"records::{record}<EpochOf({number(release)})>" if varies(steps) else f"records::{record}"


def checks(releases):
    yield '#include <cstddef>\n#include "abi/commands.h"\n#include "abi/records.h"\n#include "shm/queue_record.h"\n'
    yield "using namespace envpack::abi;\n"
    for release in releases:
        for record, steps in FACTS["records"].items():
            layout = at(steps, release)
            if layout is None:
                continue
            name = f"{record}_{number(release)}"
            yield f"using {name} = {type_of(record, steps, release)};"
            yield f'static_assert(sizeof({name}) == {layout["size"]}, "{release}: size of {record}");'
            for field, offset in layout["fields"].items():
                yield f'static_assert(offsetof({name}, {field}) == {offset}, "{release}: {record}.{field}");'
        for command, steps in FACTS["commands"].items():
            value = at(steps, release)
            yield (
                f"static_assert(CommandNumbers(EpochOf({number(release)})).Of(CommandKind::k{command}) == "
                f'{-1 if value is None else value}, "{release}: {command}");'
            )


def tables():
    yield "// Written by generate.py."
    yield "const std::map<std::string, std::map<int, Layout>> kRecords = {"
    for record, steps in FACTS["records"].items():
        rows = []
        for first, layout in steps.items():
            fields = ", ".join(f'{{"{field}", {offset}}}' for field, offset in layout["fields"].items())
            rows.append(f"{{{number(first)}, {{{layout['size']}, {{{fields}}}}}}}")
        yield f'    {{"{record}", {{{", ".join(rows)}}}}},'
    yield "};"
    yield "const std::map<std::string, std::map<int, int>> kCommands = {"
    for command, steps in FACTS["commands"].items():
        rows = ", ".join(f"{{{number(first)}, {value}}}" for first, value in steps.items())
        yield f'    {{"{command}", {{{rows}}}}},'
    yield "};"
    rows = ", ".join(f"{{{number(first)}, {count}}}" for first, count in FACTS["arguments"].items())
    yield f"const std::map<int, int> kArguments = {{{rows}}};"


if __name__ == "__main__":
    what, *releases = sys.argv[1:]
    sys.stdout.write("\n".join(checks(releases) if what == "checks" else tables()) + "\n")
