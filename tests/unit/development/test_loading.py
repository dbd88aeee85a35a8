"""The thread that loads models, and what it shares with the one that follows changes."""

import threading
import time

from envpack.development.models import ServedModels
from envpack.development.served import Loader
from envpack.repository.selection import examine_readable
from envpack.support.errors import ServerError
from tests.waiting import soon


def write_model(repository, name):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1/model.py").write_text("")
    (repository / name / "config.pbtxt").write_text('backend: "python"\n')


def raised_by(loader):
    try:
        loader.check()
    except ServerError as error:
        return error
    return None


def test_what_a_load_raises_reaches_the_thread_that_asks():
    gone = ServerError("docker-failed", "the daemon is gone")

    def load(name, started):
        raise gone

    loader = Loader(load)
    loader.check()
    loader.put(["model"], time.monotonic())
    assert soon(lambda: raised_by(loader)) is gone
    assert not loader.is_idle()  # so that the server is not given time to finish the load


def test_a_model_can_be_read_while_the_configurations_are_read_again(tmp_path, monkeypatch):
    write_model(tmp_path, "model")
    write_model(tmp_path, "other")
    models = ServedModels(tmp_path, ["model", "other"])
    reading, go_on = threading.Event(), threading.Event()

    def slow(folder):
        reading.set()
        assert go_on.wait(60)
        return examine_readable(folder)

    monkeypatch.setattr("envpack.development.models.examine_readable", slow)
    refreshing = threading.Thread(target=models.refresh)
    refreshing.start()
    assert reading.wait(60)
    found, order = models.model("model"), models.order()
    go_on.set()
    refreshing.join()
    assert found is not None
    assert order == ("model", "other")
