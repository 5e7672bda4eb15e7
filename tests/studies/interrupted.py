"""Progress that breaks a run off."""


class Killed(BaseException):
    """Like a kill, nothing may catch it to clear up."""


class DiesAfter:
    """Progress that breaks off after so many chunks."""

    def __init__(self, chunks):
        self.left = chunks

    def begin(self, case, name, trials, done):
        assert 0 <= done <= trials

    def advance(self, trials, seconds):
        assert trials > 0
        assert seconds > 0
        self.left -= 1
        if self.left == 0:
            raise Killed
