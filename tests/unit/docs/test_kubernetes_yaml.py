"""The pods and Jobs in the documentation are valid for Kubernetes."""

import re

import yaml

from tests.kubernetes_schema import check
from tests.unit.docs.documents import NAMES, read

BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_pod_is_valid():
    found = [document for name in NAMES for text in BLOCK.findall(read(name)) for document in yaml.safe_load_all(text)]
    pods = [document for document in found if isinstance(document, dict) and document.get("kind") in {"Pod", "Job"}]
    assert len(pods) > 1
    for pod in pods:
        check(pod)
