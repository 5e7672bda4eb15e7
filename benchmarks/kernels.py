"""The number of kernels that an iteration of a compiled loop launches.

It is counted in the program that XLA made. On an accelerator a small kernel takes as long as its
launch (2 to 3 us). At a branch, or a loop without a known trip count, the host waits for the
device's decision. With few lanes, these two determine the time. On a CPU a kernel is one thunk of
XLA's. A TPU runs the whole program by itself, and the count is of the program's steps.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = re.compile(r"^(?:ENTRY )?%?([^\s(]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?\S+ = (.*)$")
_FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
    *("partition-id", "replica-id", "opt-barrier"),
}
"""Operations that only name memory, or whose result is known when the program starts."""


class Launches(NamedTuple):
    """Numbers of kernels, and of truth values that the host waits for."""

    kernels: int = 0
    decisions: int = 0

    def __add__(self, other: "Launches") -> "Launches":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Launches(self.kernels + other.kernels, self.decisions + other.decisions)


class Turn(NamedTuple):
    """The launches of an iteration of a loop whose body holds a loop of known length.

    Attributes:
        whole: launches of all steps and of what is around them, with the longer side of a branch.
        step: launches of one step.
    """

    whole: Launches
    step: Launches


class _Call(NamedTuple):
    """One instruction: its name, and the text after it."""

    opcode: str
    rest: str

    def names(self, *attributes: str) -> list[str]:
        """Return the computations that it runs, by these attributes."""
        matches = re.findall(rf"\b(?:{'|'.join(attributes)})=(\{{[^}}]*\}}|[^\s,]+)", self.rest)
        return [name for match in matches for name in re.findall(r"[^\s,%{}]+", match)]


class Compiled:
    """A compiled program, parsed from the text of `jax.stages.Compiled.as_text()`."""

    def __init__(self, text: str):
        self._calls: dict[str, list[_Call]] = {}
        self._counted: dict[str, Launches] = {}
        inside: list[_Call] = []
        for line in text.splitlines():
            if head := _HEAD.match(line):
                inside = self._calls.setdefault(head[1], [])
            elif made := _INSTRUCTION.match(line):
                inside.append(_parsed(made[1]))

    def turn(self, steps: int) -> Turn:
        """Return the launches of the largest loop that holds a loop of `steps` steps.

        Raises:
            ValueError: there is no such loop.
        """
        matches = [
            Turn(self._once(outer), self._once(inner))
            for calls in self._calls.values()
            for outer in calls
            if outer.opcode == "while"
            for inner in self._loops(*outer.names("body"))
            if self._turns(inner) == steps
        ]
        if not matches:
            raise ValueError(f"steps must be the length of a loop inside a loop (got {steps}).")
        return max(matches)

    def _loops(self, name: str) -> Iterator[_Call]:
        """Yield the loops of a computation and of its branches, without nested ones."""
        for call in self._calls[name]:
            if call.opcode == "while":
                yield call
            elif call.opcode in ("call", "conditional"):
                for inner in call.names("to_apply", r"\w+_computations?"):
                    yield from self._loops(inner)

    def _turns(self, loop: _Call) -> int | None:
        """Return the trip count of a loop if XLA states it, or (TPUs) the test is `number < n`."""
        if noted := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
            return int(noted[1])
        test = self._calls[loop.names("condition")[0]]
        bounds = [call.rest.partition(")")[0] for call in test if call.opcode == "constant"]
        plain = {call.opcode for call in test} <= {*_FREE, "compare"}
        below = plain and "direction=LT" in test[-1].rest and len(bounds) == 1
        return int(bounds[0]) if below else None

    def _once(self, loop: _Call) -> Launches:
        """Return the launches of one iteration. A known trip count needs no decision."""
        asked = Launches()
        if self._turns(loop) is None:
            asked = self._launches(*loop.names("condition")) + Launches(0, 1)
        return self._launches(*loop.names("body")) + asked

    def _launches(self, name: str) -> Launches:
        """Return the launches of a computation."""
        if name not in self._counted:
            ones = (self._launched(call) for call in self._calls[name])
            self._counted[name] = sum(ones, start=Launches())
        return self._counted[name]

    def _launched(self, call: _Call) -> Launches:
        """Return the launches of an instruction. A loop of unknown length counts once."""
        if call.opcode in _FREE or call.opcode.endswith(("-done", "-update")):
            return Launches()
        if call.opcode == "while":
            once, turns = self._once(call), self._turns(call) or 1
            return Launches(once.kernels * turns, once.decisions * turns)
        if call.opcode == "conditional":
            return max(map(self._launches, call.names(r"\w+_computations?"))) + Launches(0, 1)
        if call.opcode == "call":
            return self._launches(*call.names("to_apply"))
        return Launches(1, 0)


def _parsed(text: str) -> _Call:
    """Parse the text after the equals sign: types, an operation and its arguments."""
    at = depth = 0
    while depth or text[at] != " ":
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    opcode, _, rest = text[at + 1 :].partition("(")
    return _Call(opcode, rest)
