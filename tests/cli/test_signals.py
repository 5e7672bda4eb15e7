"""SIGTERM while a command runs, and after it."""

import contextlib
import os
import signal
import sys
import threading

import pytest

from nrjax.cli import main


@pytest.fixture
def handler():
    """A handler of SIGTERM, as a program may have one that calls `main`."""

    def handle(number, frame):
        raise AssertionError("SIGTERM came after main, or passed it")

    before = signal.signal(signal.SIGTERM, handle)
    yield handle
    signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("during", ["a command", "an error", "help", "a stop"])
def test_main_handles_sigterm_only_while_it_runs(during, handler, monkeypatch, capsys):
    calls = {
        "a command": lambda: None,
        "an error": lambda: float("no number"),
        "help": sys.exit,
        "a stop": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }
    seen = []

    def call(arguments):
        seen.append(signal.getsignal(signal.SIGTERM))
        calls[during]()

    monkeypatch.setattr("nrjax.cli.commands._call", call)
    with pytest.raises(SystemExit) if during == "help" else contextlib.nullcontext():
        status = main([])
        assert status == {"a command": 0, "an error": 2, "a stop": 143}[during]
    assert signal.getsignal(signal.SIGTERM) is handler
    assert seen[0] is not handler
    assert ("stopped by SIGTERM" in capsys.readouterr().err) == (during == "a stop")


def test_main_leaves_sigterm_alone_in_another_thread(handler, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "nrjax.cli.commands._call", lambda _: seen.append(signal.getsignal(signal.SIGTERM))
    )
    thread = threading.Thread(target=lambda: seen.append(main([])))
    thread.start()
    thread.join()
    assert seen == [handler, 0]
