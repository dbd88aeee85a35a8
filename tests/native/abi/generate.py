"""Generates C++ from stub_src/abi/layouts.txt: checks of the stub's headers, or tables for the tests' peer.

    python3 generate.py layouts.txt checks 24.10 24.11 > checks.cc     static assertions for these releases
    python3 generate.py layouts.txt tables > layouts_data.h            all of the data, as tables

With --machine aarch64: the layouts of that machine. Of the types in records only the mutex of glibc has another size
there, so everything after a mutex has a larger offset. tests/portability checks this with a real server.
"""

import argparse
import re
import sys
from pathlib import Path

# How many bytes larger a machine's pthread_mutex_t is than on x86-64.
LARGER_MUTEX = {"x86_64": 0, "aarch64": 8}


def read(file, machine):
    """The arguments by release, the commands and the records with the layout of a machine, by name and release."""
    lines = re.sub(r"^#.*\n|\n  ", " ", Path(file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    arguments, commands, records = {}, {}, {}
    for line in map(str.strip, lines.splitlines()):
        head, _, fields = line.partition(":")
        words = head.split()
        if words[:1] == ["arguments"]:
            arguments = steps_in(words[1:])
        elif words[:1] == ["command"]:
            commands[words[1]] = steps_in(words[2:])
        elif words:
            record, release, size = words
            records.setdefault(record, {})[release] = layout(int(size), fields, LARGER_MUTEX[machine])
    return arguments, commands, records


def steps_in(words):
    return {release: int(value) for release, value in (word.split("=") for word in words)}


def layout(size, fields, larger):
    """A layout in which every mutex is `larger` bytes larger than in the data."""
    fields = [field.split() for field in fields.split(",")]
    mutexes = [int(offset) for kind, _, offset in fields if kind == "Mutex"]

    def moved(offset):
        return offset + larger * sum(mutex < offset for mutex in mutexes)

    return {"size": moved(size), "fields": {name: moved(int(offset)) for _, name, offset in fields}}


def number(release):
    return int(release.replace(".", ""))


def at(steps, release):
    """The value for a release, or None if it lacks the item."""
    found = None
    for first, value in steps.items():
        if number(first) <= number(release):
            found = value
    return found


def type_of(record, steps, release):
    if record == "Queue":
        return "envpack::shm::QueueRecord"
    return f"records::{record}<WireEpochOf({number(release)})>" if len(steps) > 1 else f"records::{record}"


def checks(releases, commands, records):
    yield '#include <cstddef>\n#include "abi/commands.h"\n#include "abi/records.h"\n#include "shm/queue.h"\n'
    yield "using namespace envpack::abi;\n"
    for release in releases:
        for record, steps in records.items():
            expected = at(steps, release)
            if expected is None:
                continue
            name = f"{record}_{number(release)}"
            yield f"using {name} = {type_of(record, steps, release)};"
            yield f'static_assert(sizeof({name}) == {expected["size"]}, "{release}: size of {record}");'
            for field, offset in expected["fields"].items():
                yield f'static_assert(offsetof({name}, {field}) == {offset}, "{release}: {record}.{field}");'
        for command, steps in commands.items():
            value = at(steps, release)
            yield (
                f"static_assert(CommandNumbers({number(release)}).Of(CommandKind::k{command}) == "
                f'{-1 if value is None else value}, "{release}: {command}");'
            )


def tables(arguments, commands, records):
    yield "// Written by generate.py."
    yield "const std::map<std::string, std::map<int, Layout>> kRecords = {"
    for record, steps in records.items():
        rows = []
        for first, step in steps.items():
            fields = ", ".join(f'{{"{field}", {offset}}}' for field, offset in step["fields"].items())
            rows.append(f"{{{number(first)}, {{{step['size']}, {{{fields}}}}}}}")
        yield f'    {{"{record}", {{{", ".join(rows)}}}}},'
    yield "};"
    yield "const std::map<std::string, std::map<int, int>> kCommands = {"
    for command, steps in commands.items():
        rows = ", ".join(f"{{{number(first)}, {value}}}" for first, value in steps.items())
        yield f'    {{"{command}", {{{rows}}}}},'
    yield "};"
    rows = ", ".join(f"{{{number(first)}, {count}}}" for first, count in arguments.items())
    yield f"const std::map<int, int> kArguments = {{{rows}}};"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("layouts")
    parser.add_argument("what", choices=("checks", "tables"))
    parser.add_argument("releases", nargs="*")
    parser.add_argument("--machine", choices=LARGER_MUTEX, default="x86_64")
    options = parser.parse_args()
    arguments, commands, records = read(options.layouts, options.machine)
    is_checks = options.what == "checks"
    lines = checks(options.releases, commands, records) if is_checks else tables(arguments, commands, records)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
