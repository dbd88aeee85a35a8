"""The schemas of Kubernetes, whose package takes seconds to import: only the tests that need it do so."""

VERSIONS = ("1.25", "1.30", "latest")


def check(document, version="latest"):
    """Refuse a document that has a wrong field or an unknown one.

    Raises:
        AssertionError: names the field.
    """
    import kubernetes_validate

    wanted = kubernetes_validate.latest_version() if version == "latest" else version
    try:
        kubernetes_validate.validate(document, wanted, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise AssertionError(error.message) from error
