"""Files in which tools keep passwords and tokens: no environment takes them over, and `envpack inspect` names them."""

from __future__ import annotations

import re

_NAMES = frozenset(
    {
        *("pip.conf", "pip.ini", "uv.toml", ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc", ".git-credentials"),
        *(
            ".condarc",
            "condarc",
            ".mambarc",
            "mambarc",
            ".dockercfg",
            ".pgpass",
            ".my.cnf",
            ".s3cfg",
            ".boto",
            ".vault-token",
            ".databrickscfg",
            ".env",
            ".envrc",
            ".gitconfig",
            "id_rsa",
            "id_dsa",
            "id_ed25519",
            "id_ecdsa",
        ),
    }
)
# Paths below the folders that tools call their home or configuration.
_PLACES = re.compile(
    r"(^|/)(condarc\.d/|\.?docker/config\.json$|\.aws/credentials$|\.?gcloud/|\.azure/|\.kube/config$|\.rattler/"
    r"|\.git/config$|\.ssh/|\.cargo/credentials(\.toml)?$|\.continuum/|anaconda-client/tokens/|\.kaggle/kaggle\.json$"
    r"|python_keyring/|pypoetry/auth\.toml$|\.streamlit/secrets\.toml$|application_default_credentials\.json$"
    r"|uv/credentials/|\.gnupg/|gh/hosts\.yml$|\.huggingface/token$|huggingface/token$)"
)
_PACKAGES = re.compile(r"(^|/)(site|dist)-packages/")


def holds_credentials(path: str) -> bool:
    """Whether a file of an environment is one in which tools keep passwords and tokens."""
    if _PACKAGES.search(path):
        return False
    return path.rpartition("/")[2] in _NAMES or _PLACES.search(path) is not None
