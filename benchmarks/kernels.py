"""How many kernels a turn of a compiled loop launches, counted in the program that XLA made.

On an accelerator a small kernel takes as long as its launch (2 to 3 us), and at a branch, or a loop
whose end is not known, the host waits for the device to say which way: few lanes cost what there is
of both. On a CPU a kernel is one thunk of XLA's. A TPU runs the whole program by itself: what is
counted are the program's steps.
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
"""What names memory, or is known when the program starts."""


class Launches(NamedTuple):
    """Kernels, and truth values that the host waits for."""

    kernels: int = 0
    decisions: int = 0

    def __add__(self, other: "Launches") -> "Launches":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Launches(self.kernels + other.kernels, self.decisions + other.decisions)


class Turn(NamedTuple):
    """A turn of a loop whose body holds a loop of a known number of steps."""

    whole: Launches
    """Of all its steps and what is around them; of a branch the longer side."""
    step: Launches
    """Of one of its steps."""


class _Call(NamedTuple):
    """One instruction: its name, and what is written after it."""

    opcode: str
    rest: str

    def names(self, *attributes: str) -> list[str]:
        """Computations that it runs, under these attributes."""
        found = re.findall(rf"\b(?:{'|'.join(attributes)})=(\{{[^}}]*\}}|[^\s,]+)", self.rest)
        return [name for one in found for name in re.findall(r"[^\s,%{}]+", one)]


class Compiled:
    """The text of a compiled program: `jax.stages.Compiled.as_text()`."""

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
        """The largest loop that holds one of so many steps.

        Raises:
            ValueError: there is none.
        """
        found = [
            Turn(self._once(outer), self._once(inner))
            for calls in self._calls.values()
            for outer in calls
            if outer.opcode == "while"
            for inner in self._loops(*outer.names("body"))
            if self._turns(inner) == steps
        ]
        if not found:
            raise ValueError(f"steps = {steps}: the program has no loop that holds one of so many")
        return max(found)

    def _loops(self, name: str) -> Iterator[_Call]:
        """Loops of a computation and of its branches, without those in loops."""
        for call in self._calls[name]:
            if call.opcode == "while":
                yield call
            elif call.opcode in ("call", "conditional"):
                for inner in call.names("to_apply", r"\w+_computations?"):
                    yield from self._loops(inner)

    def _turns(self, loop: _Call) -> int | None:
        """Of a loop, if they are known: XLA has noted it, or (TPUs) the test is `number < n`."""
        if noted := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
            return int(noted[1])
        test = self._calls[loop.names("condition")[0]]
        bounds = [call.rest.partition(")")[0] for call in test if call.opcode == "constant"]
        plain = {call.opcode for call in test} <= {*_FREE, "compare"}
        below = plain and "direction=LT" in test[-1].rest and len(bounds) == 1
        return int(bounds[0]) if below else None

    def _once(self, loop: _Call) -> Launches:
        """Of one turn of a loop. One whose turns are known asks nothing."""
        asked = Launches()
        if self._turns(loop) is None:
            asked = self._launches(*loop.names("condition")) + Launches(0, 1)
        return self._launches(*loop.names("body")) + asked

    def _launches(self, name: str) -> Launches:
        """Of a computation."""
        if name not in self._counted:
            ones = (self._launched(call) for call in self._calls[name])
            self._counted[name] = sum(ones, start=Launches())
        return self._counted[name]

    def _launched(self, call: _Call) -> Launches:
        """Of an instruction; a loop whose turns are not known counts once."""
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
    """Of what follows the equals sign: a type, or some in brackets, and what is done."""
    at = depth = 0
    while depth or text[at] != " ":
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    opcode, _, rest = text[at + 1 :].partition("(")
    return _Call(opcode, rest)
