"""Draw what `envpack dev` and `envpack run` show on a terminal, from real runs, as pictures of the documentation.

    python ci/draw_screens.py docs/images

writes dev.svg, an animation; dev-error.svg, its screen after an error; and run.svg. The commands run in a
pseudo-terminal on a small model and the real server. Each picture of the animation is a screen of that run; how long it
stays does not depend on the run. Needs the checkout's virtual environment with a Triton server in it, and Python 3.10.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from envpack.server.kserve import Client, RequestError
from envpack.server.tensors import Tensor

COLUMNS, LINES = 100, 15
_SECONDS = 120.0
_SHOWN = 3.0  # seconds that a picture of the animation stays
_COLOURS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "bright_black", "default": ""}
MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.factor = np.float32(2)
        pb_utils.Logger.log_info(f"multiplies by {self.factor}")

    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()) for request in requests]

    def answer(self, values):
        product = pb_utils.Tensor("Y", values * self.factor)
        return pb_utils.InferenceResponse([product])
"""
CONFIG = """backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, command: list[str], lines: int) -> None:
        self.screen = pyte.Screen(COLUMNS, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._main, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, COLUMNS, 0, 0))
        variables = os.environ | {"TERM": "xterm-256color", "COLORTERM": ""}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=variables, start_new_session=True
        )
        os.close(inner)

    def wait_for(self, condition: Callable[[str], bool]) -> None:
        """Read what the command writes until its screen meets a condition, and a moment longer."""
        until = time.monotonic() + _SECONDS
        while not condition(self.text):
            if not self._read(1.0) and (self.process.poll() is not None or time.monotonic() > until):
                raise SystemExit(f"the screen did not show what was expected:\n{self.text}")
        while self._read(0.1):
            pass

    def read_to_end(self) -> None:
        """Read until the command ends."""
        while self._read(1.0) or self.process.poll() is None:
            pass

    @property
    def text(self) -> str:
        """The screen without colours."""
        return "\n".join(self.screen.display)

    def drawn(self) -> list[Text]:
        """The lines of the screen."""
        return [self._line(number) for number in range(self.screen.lines)]

    def _read(self, seconds: float) -> bool:
        if not select.select([self._main], [], [], seconds)[0]:
            return False
        try:
            self._stream.feed(os.read(self._main, 1 << 16))
        except OSError:  # the command has ended
            return False
        return True

    def _line(self, number: int) -> Text:
        line = Text()
        row = self.screen.buffer[number]
        for style, chars in itertools.groupby((row[column] for column in range(COLUMNS)), key=_style):
            line.append("".join(char.data for char in chars), style)
        return line


def _style(char: pyte.screens.Char) -> Style:
    colour = _COLOURS.get(char.fg, char.fg)
    colour = f"#{colour}" if re.fullmatch(r"[0-9a-f]{6}", colour) else re.sub(r"^bright(?=[a-z])", "bright_", colour)
    return Style(color=colour or None, bold=char.bold, italic=char.italics)


@dataclass
class Recording:
    """Pictures of one run.

    Attributes:
        pictures: title and lines of each.

    """

    pictures: list[tuple[str, list[Text]]] = field(default_factory=list)

    def take(self, title: str, terminal: Terminal) -> None:
        self.pictures.append((title, terminal.drawn()))

    def animated(self) -> str:
        """An SVG file that shows the pictures one after the other, without end."""
        drawn = [picture(lines, title, f"p{number}") for number, (title, lines) in enumerate(self.pictures)]
        box = re.search(r'viewBox="([^"]*)"', drawn[0])
        if box is None:
            raise SystemExit("rich draws without a viewBox")
        part = 100 / len(drawn)
        rules = []
        for number in range(len(drawn)):
            start, end = number * part, (number + 1) * part
            shown = f"0%{{visibility:hidden}}{start:.3f}%{{visibility:visible}}"
            hidden = f"{end:.3f}%{{visibility:hidden}}" if number < len(drawn) - 1 else ""
            rules.append(f"@keyframes k{number}{{{shown if number else '0%{visibility:visible}'}{hidden}}}")
            rules.append(f"#f{number}{{animation:k{number} {_SHOWN * len(drawn):g}s step-end infinite}}")
        frames = "".join(f'<g id="f{number}">{text}</g>' for number, text in enumerate(drawn))
        style = f"<style>{''.join(rules)}</style>"
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}">{style}{frames}</svg>\n'


def picture(lines: list[Text], title: str, name: str) -> str:
    """One screen as an SVG file, which loads no fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(line, no_wrap=True, crop=True)
    svg = console.export_svg(title=title, unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def record_dev(repository: Path) -> tuple[Recording, str]:
    """The animation, and the picture of an error."""
    recording = Recording()
    model = repository / "doubler"
    code, requirements = model / "1/model.py", model / "requirements.txt"
    terminal = Terminal([*_envpack("dev", repository)], LINES)
    try:
        terminal.wait_for(lambda text: "building" in text)
        recording.take("$ envpack dev", terminal)
        terminal.wait_for(lambda text: "ready in" in text)
        url = re.search(r"http://\S+", terminal.text)
        with _requests(url[0] if url else ""):
            terminal.wait_for(lambda text: " ms" in text)
            recording.take("$ envpack dev", terminal)
            error = ""
            for title, file, old, new, expected in (
                ("model.py was saved: the factor is 3", code, "float32(2)", "float32(3)", "ready in"),
                ("model.py was saved with a mistake", code, "import numpy as np\n", "", "failed"),
                (
                    "model.py was saved: corrected",
                    code,
                    "import triton",
                    "import numpy as np\nimport triton",
                    "ready in",
                ),
                ("model.py was saved: import six", code, "import numpy", "import six\nimport numpy", "No module named"),
                ("requirements.txt was saved: six", requirements, "numpy\n", "numpy\nsix\n", "building"),
                ("the environment was built", requirements, "", "", "ready in"),
            ):
                before = _loads(terminal.text)
                if old:
                    file.write_text(file.read_text().replace(old, new))
                terminal.wait_for(
                    lambda text, word=expected, loads=before: (  # type: ignore[misc]
                        " ms" in text and _loads(text) > loads if word == "ready in" else word in text
                    )
                )
                recording.take(title, terminal)
                if "mistake" in title:
                    error = picture(terminal.drawn(), "$ envpack dev", "error")
    finally:
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_to_end()
    return recording, error


def _loads(text: str) -> int:
    """How often the model has been loaded, 0 while it is not ready."""
    found = re.search(r"ready in [\d.]+ s +(\d+)", text)
    return int(found[1]) if found else 0


def draw_run(repository: Path) -> str:
    """The picture of one request without a server."""
    terminal = Terminal(_envpack("run", repository, "doubler", "--repeat", "1000"), 6)
    terminal.read_to_end()
    return picture(terminal.drawn(), "$ envpack run doubler --repeat 1000", "run")


def _envpack(command: str, repository: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "envpack", command, *words, "--repository", str(repository), "--python", "3.10"]


@contextlib.contextmanager
def _requests(url: str) -> Iterator[None]:
    """Send requests during the block."""
    ended = threading.Event()

    def send() -> None:
        client = Client(url)
        while not ended.wait(0.02):
            with contextlib.suppress(RequestError):
                client.infer("doubler", [Tensor("X", "FP32", (2,), (1, 2))])

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def main(images: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="envpack-screens-") as folder:
        repository = Path(folder)
        model = repository / "doubler"
        (model / "1").mkdir(parents=True)
        (model / "1/model.py").write_text(MODEL)
        (model / "config.pbtxt").write_text(CONFIG)
        (model / "requirements.txt").write_text("numpy\n")
        recording, error = record_dev(repository)
        (images / "dev.svg").write_text(recording.animated(), encoding="utf-8")
        (images / "dev-error.svg").write_text(error, encoding="utf-8")
        (images / "run.svg").write_text(draw_run(repository), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
