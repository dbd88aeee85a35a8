"""From layouts.json: C++ that checks stub_src/abi against it, or that the tests' peer looks layouts up in.

    python3 generate.py checks 24.10 24.11 > checks.cc     static assertions for these releases
    python3 generate.py tables > layouts_data.h            all of the data, as tables

With --machine aarch64: as they are there.

layouts.json holds what the two processes must agree on, by the first release of which it is true: offsets of every
field in bytes, with sizes of the records, as x86-64 compilers lay them out; numbers of commands; how many arguments a
stub is given. Of all that is in a record only the mutex of glibc has another size on aarch64, so the layouts of that
machine follow: whatever lies behind a mutex lies that much further. tests/portability has a real server's word for it.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

FACTS = json.loads(Path(__file__).with_name("layouts.json").read_text(encoding="utf-8"))

# By how many bytes a machine's pthread_mutex_t is larger than that of x86-64, and the fields that are one.
LARGER_MUTEX = {"x86_64": 0, "aarch64": 8}
MUTEXES = {"mutex", "parent_health_mutex", "stub_health_mutex"}


def records(machine):
    """The records of layouts.json as a machine lays them out."""
    larger = LARGER_MUTEX[machine]
    return {
        record: {first: moved(layout, larger) for first, layout in steps.items()}
        for record, steps in FACTS["records"].items()
    }


def moved(layout, larger):
    """A layout with every mutex that many bytes larger."""
    mutexes = [offset for field, offset in layout["fields"].items() if field in MUTEXES]

    def behind(offset):
        return larger * sum(mutex < offset for mutex in mutexes)

    fields = {field: offset + behind(offset) for field, offset in layout["fields"].items()}
    return {"size": layout["size"] + behind(layout["size"]), "fields": fields}


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


def checks(releases, machine):
    yield '#include <cstddef>\n#include "abi/commands.h"\n#include "abi/records.h"\n#include "shm/queue_record.h"\n'
    yield "using namespace envpack::abi;\n"
    for release in releases:
        for record, steps in records(machine).items():
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


def tables(machine):
    yield "// Written by generate.py."
    yield "const std::map<std::string, std::map<int, Layout>> kRecords = {"
    for record, steps in records(machine).items():
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("checks", "tables"))
    parser.add_argument("releases", nargs="*")
    parser.add_argument("--machine", choices=LARGER_MUTEX, default="x86_64")
    asked = parser.parse_args()
    lines = checks(asked.releases, asked.machine) if asked.what == "checks" else tables(asked.machine)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
