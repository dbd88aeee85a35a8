"""A connection to a daemon that breaks off when a test wants it to, as if the daemon had ended."""

import contextlib
import socket
import threading
from pathlib import Path


class Relay:
    """A proxy between a program and a daemon that can be closed."""

    def __init__(self, daemon, place):
        self.daemon, self.place = daemon, str(place)
        self.sockets = []

    def __enter__(self):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.place)
        self.server.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.break_off()

    def break_off(self):
        Path(self.place).unlink(missing_ok=True)
        for connection in (self.server, *self.sockets):
            with contextlib.suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self):
        while True:
            try:
                here, _ = self.server.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(self.daemon)
            self.sockets += [here, there]
            for source, target in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    @staticmethod
    def _pass_on(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return
