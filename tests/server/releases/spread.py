"""The pairs of a Triton release and a Python that run without further options: each such Python once."""

SPREAD = (
    ("23.04", "3.6"),
    ("23.04", "3.8"),
    ("23.10", "3.9"),
    ("24.03", "3.11"),
    ("24.06", "3.12"),
    ("24.08", "3.13"),
    ("24.10", "3.7"),
    ("24.10", "3.10"),
)
