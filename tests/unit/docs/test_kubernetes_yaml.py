"""The pods and Jobs in the documentation are valid for Kubernetes, and need no rights."""

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
        spec = pod["spec"]["template"]["spec"] if pod["kind"] == "Job" else pod["spec"]
        assert_restricted(spec)


def assert_restricted(spec):
    """What the pod security standard ``restricted`` demands of rights."""
    of_pod = spec["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
