"""Generates C++ from layouts.json: checks of stub_src/abi, or tables for the tests' peer.

    python3 generate.py checks 24.10 24.11 > checks.cc     static assertions for these releases
    python3 generate.py tables > layouts_data.h            all of the data, as tables

With --machine aarch64: the layouts of that machine.

layouts.json contains what the two processes must agree on, by the first release for which it holds: the offset of each
field in bytes and the size of each record, on x86-64; the numbers of commands; the number of arguments of a stub. Of
the types in records only the mutex of glibc has another size on aarch64, so the layouts of that machine can be
derived: everything after a mutex has a larger offset. tests/portability checks this with a real server.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

FACTS = json.loads(Path(__file__).with_name("layouts.json").read_text(encoding="utf-8"))

# How many bytes larger a machine's pthread_mutex_t is than on x86-64, and the fields of that type.
LARGER_MUTEX = {"x86_64": 0, "aarch64": 8}
MUTEXES = {"mutex", "parent_health_mutex", "stub_health_mutex"}


def records(machine):
    """The records of layouts.json with the layout of a machine."""
    larger = LARGER_MUTEX[machine]
    return {
        record: {first: moved(layout, larger) for first, layout in steps.items()}
        for record, steps in FACTS["records"].items()
    }


def moved(layout, larger):
    """A layout in which every mutex is `larger` bytes larger."""
    mutexes = [offset for field, offset in layout["fields"].items() if field in MUTEXES]

    def behind(offset):
        return larger * sum(mutex < offset for mutex in mutexes)

    fields = {field: offset + behind(offset) for field, offset in layout["fields"].items()}
    return {"size": layout["size"] + behind(layout["size"]), "fields": fields}


def number(release):
    return int(release.replace(".", ""))


def at(steps, release):
    """The value for a release, or None if it lacks the item."""
    found = None
    for first, value in steps.items():
        if number(first) <= number(release):
            found = value
    return found


def varies(steps):
    """Whether the layout differs between releases, other than by new fields in place of padding."""
    layouts = list(steps.values())
    return any(
        later["size"] != earlier["size"] or not earlier["fields"].items() <= later["fields"].items()
        for earlier, later in itertools.pairwise(layouts)
    )


def type_of(record, steps, release):
    if record == "Queue":
        return "envpack::shm::QueueRecord"
    return f"records::{record}<WireEpochOf({number(release)})>" if varies(steps) else f"records::{record}"


def checks(releases, machine):
    yield '#include <cstddef>\n#include "abi/commands.h"\n#include "abi/records.h"\n#include "shm/queue.h"\n'
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
                f"static_assert(CommandNumbers({number(release)}).Of(CommandKind::k{command}) == "
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
    options = parser.parse_args()
    lines = checks(options.releases, options.machine) if options.what == "checks" else tables(options.machine)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
