"""Files for passwords are recognised by where tools look for them."""

import pytest

from envpack.environment import holds_credentials


@pytest.mark.parametrize(
    "path",
    [
        "pip.conf",
        "etc/pip.conf",
        ".netrc",
        "home/.pypirc",
        ".condarc",
        "etc/conda/condarc",
        "condarc.d/channels.yml",
        ".config/uv/credentials/index.toml",
        "uv.toml",
        ".git-credentials",
        ".aws/credentials",
        ".docker/config.json",
        ".config/gcloud/application_default_credentials.json",
    ],
)
def test_a_file_for_passwords(path):
    assert holds_credentials(path)


@pytest.mark.parametrize(
    "path",
    [
        "lib/python3.10/site-packages/requests/tests/.netrc",
        "lib/python3.10/site-packages/botocore/.aws/credentials",
        "bin/pip",
        "lib/pip.config",
        "share/doc/netrc",
        "conda-meta/pip-23.0-0.json",
        "share/credentials",
        "etc/config.json",
    ],
)
def test_any_other_file(path):
    assert not holds_credentials(path)
