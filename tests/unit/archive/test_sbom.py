"""Bills of materials, judged by CycloneDX's own library."""

import json

import pytest
from packageurl import PackageURL

import envpack
from envpack.archive.sbom import bill_of_materials, package_url
from envpack.environment.inventory import Package

PACKAGES = [
    Package(
        name="python",
        version="3.10.13",
        source="conda",
        license="Python-2.0",
        url="https://conda.example/linux-64/python.conda",
        sha256="a" * 64,
        size=10,
    ),
    Package(
        name="numpy",
        version="1.26.4",
        source="pip",
        license="BSD-3-Clause AND MIT",
        url="https://example/numpy.whl",
        sha256="b" * 64,
        size=20,
    ),
    Package(
        name="local",
        version="1.0+cu12.1",
        source="pip",
        license="Copyright (c) somebody, all rights",
        url="file:///a b.whl",
        sha256="c" * 64,
    ),
    Package(name="plain", version="2", source="pip"),
    Package(name="spoken", version="2", source="pip", license="BSD License"),
]


def _violation(text):
    """What CycloneDX's schema says against a bill; None if nothing."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes seconds to import: not in every test process

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


def test_it_is_valid_and_names_everything():
    text = bill_of_materials(PACKAGES, name="core", version="d" * 64, python="3.10.13")
    assert _violation(text) is None
    document = json.loads(text)
    found = {component["name"]: component for component in document["components"]}
    assert [found[package.name]["version"] for package in PACKAGES] == [package.version for package in PACKAGES]
    assert found["python"]["purl"] == "pkg:conda/python@3.10.13"
    assert found["numpy"]["licenses"] == [{"expression": "BSD-3-Clause AND MIT"}]
    assert found["spoken"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert found["numpy"]["externalReferences"][0]["hashes"][0]["content"] == "b" * 64
    assert "externalReferences" not in found["local"]  # a path of the machine that built it
    assert "licenses" not in found["plain"]
    assert bill_of_materials(PACKAGES, name="core", version="d" * 64, python="3.10.13") == text


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_names_for_scanners_can_be_read_back(package):
    read = PackageURL.from_string(package_url(package))
    assert (read.name, read.version) == (package.name, package.version)


def test_nothing_is_a_valid_bill_too():
    text = bill_of_materials([], name="empty", version="1")
    assert _violation(text) is None


def test_a_component_has_its_license_hash_and_address():
    def component(**changes):
        package = Package(**{"name": "A/b", "version": "1 2", "source": "pip", "size": 7, **changes})
        document = json.loads(bill_of_materials([package], name="core", version="1"))
        assert "description" not in document["metadata"]["component"]
        (found,) = document["components"]
        return found

    plain = {
        "type": "library", "bom-ref": "pkg:pypi/A%2Fb@1%202", "name": "A/b", "version": "1 2",
        "purl": "pkg:pypi/A%2Fb@1%202", "properties": [{"name": "envpack:installed-size", "value": "7"}],
    }  # fmt: skip
    hashes = [{"alg": "SHA-256", "content": "a" * 64}]
    assert component() == plain
    assert component(url="file:///x.whl", sha256="a" * 64) == plain | {"hashes": hashes}
    for url in ("http://x/y", "https://x/y"):
        reference = {"type": "distribution", "url": url}
        assert component(url=url) == plain | {"externalReferences": [reference]}
        assert component(url=url, sha256="a" * 64) == plain | {"externalReferences": [{**reference, "hashes": hashes}]}
    assert component(license="mit") == plain | {"licenses": [{"expression": "MIT"}]}
    assert component(source="other")["purl"] == "pkg:generic/A%2Fb@1%202"


def test_the_document_names_the_environment_and_what_it_depends_on():
    text = bill_of_materials(PACKAGES[:2], name="core", version="9", python="3.10")
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert document["$schema"] == "http://cyclonedx.org/schema/bom-1.6.schema.json"
    assert document["metadata"]["tools"]["components"] == [
        {"type": "application", "name": "envpack", "version": envpack.__version__}
    ]
    assert document["metadata"]["component"] == {
        "type": "application", "bom-ref": "environment", "name": "core", "version": "9",
        "description": "execution environment with Python 3.10",
    }  # fmt: skip
    names = ["pkg:conda/python@3.10.13", "pkg:pypi/numpy@1.26.4"]
    assert document["dependencies"] == [{"ref": "environment", "dependsOn": names}, *({"ref": name} for name in names)]
    other = json.loads(bill_of_materials(PACKAGES[:1], name="core", version="9", python="3.10"))
    assert document["serialNumber"].startswith("urn:uuid:")
    assert other["serialNumber"] != document["serialNumber"]
    assert text == json.dumps(document, indent=1, sort_keys=True) + "\n"
