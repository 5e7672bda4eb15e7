"""Runs of a study that are stopped in the middle, resumed, and compared bit for bit."""

from pathlib import Path

from nrjax.cli import loading
from nrjax.study.store import Store

CHUNK = 4
FILE = str(Path(__file__).with_name("walks.py"))


class Killed(BaseException):
    """An exception that stands for a kill, which no handler catches."""


class Then:
    """Progress that calls a function after a number of chunks, or kills."""

    def __init__(self, chunks, action=None):
        self.left, self.action = chunks, action

    def begin(self, case, name, trials, done):
        """Show nothing."""

    def advance(self, trials, seconds):
        self.left -= 1
        if self.left == 0:
            if self.action is None:
                raise Killed
            self.action()


def run(out, data, trials=10, progress=False, chunk=CHUNK, **settings):
    """Run the study in walks.py, and return its store."""
    source = loading.find(FILE)
    study = source.study(source.settings(data=data, **settings))
    return study.run(out, trials=trials, chunk=chunk, progress=progress).store


def resume(folder, trials=None, progress=False):
    """Resume a run of a study as the command does, and return its store."""
    store = Store.open(folder)
    study = loading.of_store(store).stored(store)
    return study.run(folder, trials=trials, progress=progress).store


def assert_same_bits(first, second):
    """Check that two stores hold bit-for-bit identical arrays."""
    assert list(first.cases) == list(second.cases)
    for name, case in first.cases.items():
        for pass_ in case.passes:
            left, right = first.arrays(name, pass_), second.arrays(name, pass_)
            assert set(left) == set(right)
            for variable in left:
                assert left[variable].tobytes() == right[variable].tobytes()
