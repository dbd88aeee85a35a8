"""The packages of an environment as a CycloneDX bill of materials."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from urllib.parse import quote

from envpack.environment.inventory import Package

SPEC = "1.6"
_NAMESPACE = uuid.UUID("b5f4a1d6-95b8-4a8c-a8a5-5e25fe3a1f0b")  # of serial numbers
_TYPES = {"pip": "pypi", "conda": "conda"}


def bill_of_materials(packages: Sequence[Package], *, name: str, version: str, python: str = "") -> str:
    """A CycloneDX 1.6 document as JSON text; the same packages produce the same text."""
    import envpack

    root = {"type": "application", "bom-ref": "environment", "name": name, "version": version}
    if python:
        root["description"] = f"execution environment with Python {python}"
    components = [_component(package) for package in packages]
    inputs = json.dumps([root, components], sort_keys=True)
    document = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, inputs)}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "envpack", "version": envpack.__version__}]},
            "component": root,
        },
        "components": components,
        "dependencies": [
            {"ref": "environment", "dependsOn": [component["bom-ref"] for component in components]},
            *({"ref": component["bom-ref"]} for component in components),
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def package_url(package: Package) -> str:
    """The package URL, by which scanners identify a package: ``pkg:pypi/numpy@1.26.4``."""
    kind = _TYPES.get(package.source, "generic")
    return f"pkg:{kind}/{quote(package.name, safe='')}@{quote(package.version, safe='')}"


def _component(package: Package) -> dict[str, object]:
    url = package_url(package)
    component: dict[str, object] = {
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
        "properties": [{"name": "envpack:installed-size", "value": str(package.size)}],
    }
    if package.license:
        component["licenses"] = [_license(package.license)]
    distribution: dict[str, object] = {"type": "distribution", "url": package.url}
    if package.sha256:
        distribution["hashes"] = [{"alg": "SHA-256", "content": package.sha256}]
    if package.url.startswith(("http://", "https://")):
        component["externalReferences"] = [distribution]
    elif package.sha256:
        component["hashes"] = distribution["hashes"]
    return component


def _license(text: str) -> dict[str, object]:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return {"expression": canonicalize_license_expression(text)}
    except InvalidLicenseExpression:
        return {"license": {"name": text}}
