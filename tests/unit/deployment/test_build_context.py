import io
import os
import tarfile

import pytest

from envpack.deployment.image import context_of


def test_hard_links_are_sent_once_and_every_user_can_read(tmp_path):
    (tmp_path / "models/1").mkdir(parents=True)
    (tmp_path / "models/1/big").write_bytes(os.urandom(100_000))
    (tmp_path / "models/1/big").chmod(0o600)
    (tmp_path / "models/program").hardlink_to(tmp_path / "models/1/big")
    (tmp_path / "models/1/run").write_text("x")
    (tmp_path / "models/1/run").chmod(0o700)
    (tmp_path / "models/link").symlink_to("1/run")
    with context_of(tmp_path, "FROM scratch\n") as parts:
        sent = b"".join(parts)
    assert len(sent) < 150_000
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert archive.extractfile("Dockerfile").read() == b"FROM scratch\n"
        modes = {entry.name: entry.mode & 0o777 for entry in archive if not entry.issym()}
        assert modes["models/1/big"] == 0o644
        assert modes["models/1/run"] == 0o755
        assert archive.getmember("models/program").islnk()
        assert {(entry.uid, entry.uname) for entry in archive} == {(0, "")}


def test_the_writer_stops_when_the_reader_stops(tmp_path):
    (tmp_path / "big").write_bytes(bytes(10_000_000))
    with context_of(tmp_path, "") as parts:
        next(parts)


def test_an_unreadable_file_is_an_error(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tarfile.TarFile, "add", refuse)
    (tmp_path / "one").touch()
    with pytest.raises(PermissionError), context_of(tmp_path, "") as parts:
        list(parts)
