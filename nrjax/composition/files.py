"""States of filters and odometers as JSON, exactly, and as a file that several notebooks share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nrjax._base.validation import check, concrete_or_none
from nrjax._base.version import __version__
from nrjax.composition._costs import CostModel
from nrjax.composition._state import LedgerState, Spending, check_owner

_FORMAT = 1
_UNKNOWN = "It is damaged, and its spending is unknown: do not start again with nothing spent."


def _parameters(owner: CostModel) -> dict[str, Any]:
    """Return the fields of a filter or odometer as texts, exactly."""
    fields: dict[str, Any] = {"kind": type(owner).__name__}
    for field in dataclasses.fields(owner):  # pyright: ignore[reportArgumentType]
        if field.init:
            value = getattr(owner, field.name)
            number = concrete_or_none(value)
            if number is not None:
                check(number.ndim == 0, field.name, value, "a single number")
                value = repr(float(number))
            fields[field.name] = _parameters(value) if isinstance(value, CostModel) else str(value)
    return fields


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def to_json(owner: CostModel, state: LedgerState) -> str:
    """Return the state of a filter or odometer as JSON, from which `from_json` restores it exactly.

    Open rounds are charged what they have reserved, and cannot be closed after `from_json`. So you
    can write a state before each release of a round, and again when the round is closed.

        >>> filter = nrjax.GaussianFilter(epsilon=1.0, delta=1e-6)
        >>> state, ok = filter.take(filter.init(), nrjax.composition.GDP(mu=0.1))
        >>> text = nrjax.composition.to_json(filter, state)
        >>> nrjax.composition.from_json(filter, text) == state
        True

    Args:
        owner: the filter or odometer.
        state: its state, concrete and not a batch.

    Raises:
        ValueError: the state is for another filter or odometer, or is traced.
    """
    check_owner(owner, state)
    known = all(concrete_or_none(leaf) is not None for leaf in jax.tree.leaves((owner, state)))
    check(known, "state", state, "a concrete state", "Write it outside of jit and vmap.")
    spent = [np.asarray(number).tolist() for number in state.with_reservations(state.spent)]
    content = {
        "format": _FORMAT,
        "nrjax": __version__,
        "parameters": _parameters(owner),
        "dtype": state.dtype,
        "units": owner._units,
        "total": [repr(number) for number in spent[0]],
        "residual": [repr(number) for number in spent[1]],
        "rounds opened": int(state.last),
    }
    return json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n"


def from_json(owner: CostModel, text: str, rounds: int = 0) -> LedgerState:
    """Return the state of a filter or odometer that `to_json` wrote.

    Args:
        owner: filter or odometer with the parameters of the one whose state was written.
        text: JSON from `to_json`.
        rounds: largest number of rounds that are open at a time (filters only).

    Raises:
        ValueError: the text is damaged, or is for other parameters or another dtype.
    """
    try:
        content = json.loads(text)
        intact = content.pop("checksum") == _checksum(content)
    except (AttributeError, KeyError, TypeError, ValueError):
        content, intact = {}, False
    check(intact, "text", text, "JSON from to_json, unchanged", _UNKNOWN)
    check(content["format"] == _FORMAT, "format", content["format"], str(_FORMAT))
    new = owner.init(rounds) if rounds else owner.init()  # pyright: ignore[reportAttributeAccessIssue]
    hint = "Use the precision in which it was made: see JAX_ENABLE_X64."
    check(content["dtype"] == new.dtype, "dtype of the state", content["dtype"], new.dtype, hint)
    known, stated = _parameters(owner), content["parameters"]
    hint = "Give the filter or odometer whose state was written."
    for name in dict.fromkeys([*known, *stated]):
        same = known.get(name) == stated.get(name)
        check(same, f"{name} of the state", stated.get(name), str(known.get(name)), hint)
    total, residual = (np.array(content[key], float) for key in ("total", "residual"))
    sound = total.shape == residual.shape == (len(owner._units),) and np.all(total >= 0)
    sound = sound and np.all(np.abs(residual) <= float(jnp.finfo(new.dtype).eps) * total)
    check(sound, "spending of the state", content["total"], "a sum of costs", _UNKNOWN)
    spent = Spending(*(jnp.asarray(number, new.dtype) for number in (total, residual)))
    return dataclasses.replace(new, spent=spent, last=jnp.int32(content["rounds opened"]))


def load(path: str | os.PathLike[str], owner: CostModel, rounds: int = 0) -> LedgerState:
    """Return the state in a file that `save` wrote: see `from_json`."""
    state = from_json(owner, Path(path).read_text("utf-8"), rounds)
    return dataclasses.replace(state, saved=_mark(to_json(owner, state)))


def save(
    path: str | os.PathLike[str],
    owner: CostModel,
    state: LedgerState,
    previous: LedgerState | None = None,
) -> None:
    """Write a state to a file, unless the file has changed since it was loaded.

    Save BEFORE the mechanism runs, so that no spending is lost. A kill leaves the old or the new
    content. If two notebooks load one state, the second one to save gets an error: it must load
    again, and request again, before its mechanism runs.

        >>> filter = nrjax.GaussianFilter(epsilon=1.0, delta=1e-6)
        >>> nrjax.composition.save("budget.json", filter, filter.init())
        >>> state = nrjax.composition.load("budget.json", filter)
        >>> new, ok = filter.take(state, nrjax.composition.GDP(mu=0.1))
        >>> nrjax.composition.save("budget.json", filter, new, previous=state)

    A state that was saved carries a mark (`LedgerState.saved`), as one that was loaded does. All
    states that are made from it afterwards carry the mark too.

    Args:
        path: the file.
        owner: the filter or odometer.
        state: the new state.
        previous: state that the file holds, loaded or saved last; None for a new file.

    Raises:
        ValueError: the file holds another state than `previous`, or is damaged. Or the state was
            not made from `previous` after that was loaded or saved.
        FileExistsError: another process is saving, or was killed while it was saving. Then remove
            the file `.NAME.saving` that the message names.
    """
    # If the path is a link, the file to which it leads is replaced, not the link.
    given, path, text = str(path), Path(path).resolve(), to_json(owner, state)
    expected = None if previous is None else to_json(owner, previous)
    new = path.with_name(f".{path.name}.saving")
    file = new.open("x", encoding="utf-8")  # a lock: fails while another process is saving
    try:
        with file:
            found = to_json(owner, load(path, owner)) if path.exists() else None
            hint = "Load the state again, and request again, before the mechanism runs."
            same, got = found == expected, found and "another state"
            check(same, given, got, "the file of the state `previous`", hint)
            if expected is not None:
                _check_follows(state, previous, _mark(expected))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    new.replace(path)  # outside: from here on the name may be another process's lock
    object.__setattr__(state, "saved", _mark(text))


def _check_follows(state: LedgerState, previous: Any, mark: Array) -> None:
    """Check that a state was made from the previous one, or that there is nothing to lose."""
    charged = np.asarray(previous.with_reservations(previous.spent).total)
    follows = state.saved is not None and np.array_equal(state.saved, mark)
    follows |= not np.any(charged)
    got = f"a state with {float(state.spent.total[0]):.6g} spent"
    hint = "Request from the state that was loaded or saved, not from an earlier one."
    check(follows, "state", got, "one that was made from `previous`", hint)


def _mark(text: str) -> Array:
    """Return the mark of the state that a text holds."""
    digest = hashlib.sha256(text.encode()).digest()
    return jnp.asarray(np.frombuffer(digest[:8], np.uint32))
