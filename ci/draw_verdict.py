"""Draw a verdict of a real run as the picture in the README.

python ci/draw_verdict.py demo docs/images/verdict.svg
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from envpack.cli.verify import draw
from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify


def main(repository: Path, picture: Path) -> None:
    verdict = verify(repository.absolute(), spec=ServerSpec(Settings(runtime="process")))
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print("$ envpack verify")
    for part in draw(verdict):
        console.print(part)
    svg = console.export_svg(title="envpack")
    # The picture must not load fonts.
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
