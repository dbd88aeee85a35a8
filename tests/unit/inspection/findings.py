"""What the tests of findings share."""

import tarfile

from envpack.inspection.repository import inspect_repository
from envpack.repository.model import open_model
from envpack.repository.placement import point_to_environment


def kinds(project, release, **options):
    found = inspect_repository(project, release, **options)
    return [(finding.severity, finding.kind) for finding in found.findings]


def name_environment(model, value):
    point_to_environment(open_model(model), value)


def pack(environment, file, *, mode="w:gz", change=None, extra=()):
    with tarfile.open(file, mode) as archive:
        archive.add(environment, ".", filter=change)
        for entry in extra:
            archive.addfile(entry)


def named(name, kind=tarfile.REGTYPE, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry
