"""Requests as events of the package dp-accounting, and back.

Neither direction lowers a cost: numbers are rounded to the safe side unless they are exact.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax

from nrjax._base.extras import missing
from nrjax._base.sensitivities import shared_relation
from nrjax._base.validation import check, check_choice, check_integer, concrete_or_none
from nrjax.composition import requests
from nrjax.composition.conversions import SLACK
from nrjax.composition.requests import Request, names, parts

_RELATIONS = {"replace": "REPLACE_ONE", "add-remove": "ADD_OR_REMOVE_ONE"}
_MOST = 100_000
"""Largest number of requests that one event may become."""


def _package() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise missing(error.name, "a DpEvent", "accounting") from error
    return dp_accounting


def _as_float(exact: Fraction, towards: float) -> float:
    """Return a positive fraction as a float, rounded towards 0 or infinity."""
    value = float(min(exact, Fraction(sys.float_info.max)))
    safe = Fraction(value) >= exact if towards else Fraction(value) <= exact
    return value if safe else math.nextafter(value, towards)


def _quotient(first: Any, second: Any, towards: float = 0) -> float:
    """Return a quotient of positive numbers, rounded towards 0 or infinity."""
    return _as_float(Fraction(first) / Fraction(second), towards)


class _Target(NamedTuple):
    """The package, and the accountant and the relation that its events are for."""

    dp: Any
    accountant: str
    replaces: bool


def _gaussian(to: _Target, size: float, time: float) -> Any:
    squared = Fraction(time) / Fraction(size) ** 2
    noise = math.sqrt(_as_float(squared, 0))
    return to.dp.GaussianDpEvent(
        noise if Fraction(noise) ** 2 <= squared else math.nextafter(noise, 0)
    )


def _zcdp(to: _Target, rho: float, delta: float = 0.0) -> Any:
    hint = "Leave accountant away, or use accountant='rdp'."
    check(to.accountant == "rdp", "accountant", to.accountant, "'rdp' for zCDP", hint)
    return to.dp.ZCDpEvent(rho)


def _pure(to: _Target, epsilon: float) -> Any:
    """Return randomised response, which is the worst mechanism of an epsilon.

    For an added or removed row dp-accounting has its privacy loss as that of discrete Laplace
    noise, and for Rényi divergences only as zCDP.
    """
    if to.replaces:
        odds = math.exp(-epsilon)
        noise = 2 * odds / (1 + odds) * (1 - SLACK) - 2e-323
        return to.dp.RandomizedResponseDpEvent(max(noise, 0.0), 2)
    if epsilon == 0:
        return to.dp.NoOpDpEvent()
    if to.accountant == "pld":
        return to.dp.dp_event.DiscreteLaplaceDpEvent(epsilon, 1)
    return _zcdp(to, epsilon * math.tanh(epsilon / 2) * (1 + SLACK) + 2e-323)


def _bounded_range(to: _Target, epsilon: float) -> Any:
    if to.accountant == "pld":
        return _pure(to, epsilon)
    return _zcdp(to, _as_float(Fraction(epsilon) ** 2 / 8, math.inf))


def _laplace(to: _Target, size: float, time: float, cap: float = 0) -> Any:
    if to.accountant == "pld" and to.replaces:
        return _pure(to, _quotient(size, time, math.inf))
    return to.dp.LaplaceDpEvent(_quotient(time, size))


def _discrete_laplace(to: _Target, size: float, time: float, cap: float = 0) -> Any:
    if to.accountant == "rdp" or to.replaces:
        return _pure(to, _quotient(size, time, math.inf))
    return to.dp.dp_event.DiscreteLaplaceDpEvent(_quotient(1, time, math.inf), math.ceil(size))


_EVENTS: Mapping[type, Callable[..., Any]] = {
    requests.ZCDP: _zcdp,
    requests.GDP: lambda to, mu: (
        to.dp.GaussianDpEvent(_quotient(1, mu)) if mu else to.dp.NoOpDpEvent()
    ),
    requests.Pure: _pure,
    requests.BoundedRange: _bounded_range,
    requests.LaplaceMechanism: _laplace,
    requests.LaplaceReduction: _laplace,
    requests.DiscreteLaplaceReduction: _discrete_laplace,
    requests.BrownianReduction: _gaussian,
}
_RENYI = requests.ZCDP, requests.BoundedRange
_LAPLACE = requests.LaplaceMechanism, requests.LaplaceReduction


def _accountant(singles: list[Any], replaces: bool) -> str:
    """Return the accountant with the smaller bound that has events for all requests."""
    renyi = (*_RENYI, *_LAPLACE) if replaces else _RENYI
    return "rdp" if any(isinstance(part, renyi) for part in singles) else "pld"


def _event(to: _Target, planned: bool, request: Any) -> Any:
    """Return the event of a single request."""
    kind, expected = type(request), "of a cost that is fixed before the mechanism runs"
    hint = (
        "An ex-post epsilon, pure, probabilistic or hockey-stick, is that of a stop: use a filter."
    )
    check(kind is not requests.ExPost, "request", request, expected, hint)
    check(kind in _EVENTS, "request", request, f"one of {names(_EVENTS)}")
    hint = "Its time may be that of a stop. For the smallest time of a plan, give planned=True."
    check(planned or kind not in requests.REDUCTIONS, "request", request, expected, hint)
    request.check_single()
    known = all(concrete_or_none(leaf) is not None for leaf in jax.tree.leaves(request))
    check(known, "request", request, "of concrete numbers")
    numbers = {field: float(value) for field, _, value in request.fields()}
    hint = "dp-accounting has no event with a delta: use a filter."
    check(not numbers.get("delta"), f"{kind.__name__}.delta", numbers.get("delta"), "0", hint)
    return _EVENTS[kind](to, *numbers.values())


def to_dp_event(
    request: Request,
    *,
    planned: bool = False,
    accountant: Literal["pld", "rdp"] | None = None,
) -> tuple[Any, Any]:
    """Return a request, or a tuple of requests, as an event of the package dp-accounting.

    The event costs at least as much. Its noise multiplier is the noise divided by the sensitivity.
    One accountant of dp-accounting takes all parts of the event:

    * "pld": `PLDAccountant`, which has no event for `ZCDP`.
    * "rdp": `RdpAccountant`, which takes every request.

    `Pure` becomes randomised response, which for "add-remove" is discrete Laplace noise of
    sensitivity 1 ("pld") or zCDP ("rdp"). `BoundedRange` becomes zCDP ("rdp") or as `Pure`. Noise
    for which the accountant has no event becomes as `Pure`, with epsilon `D1/t`.

    Make the accountant with the relation that is returned. For REPLACE_ONE, dp-accounting 0.6
    doubles the sensitivity of Gaussian noise in `PLDAccountant`, not in `RdpAccountant`
    (google/differential-privacy#378). It charges a `SelfComposedDpEvent` of randomised response as
    one, so that a plan has one event for each.

        >>> plan = (nrjax.composition.GDP(0.5), *[nrjax.composition.ZCDP(0.1)] * 3)
        >>> event, relation = nrjax.composition.to_dp_event(plan)
        >>> event.events[0], event.events[1].count, relation.name
        (GaussianDpEvent(noise_multiplier=2.0), 3, 'REPLACE_ONE')

    Args:
        request: request whose cost was fixed beforehand, or a tuple of requests.
        planned: whether each time of noise reduction was fixed beforehand, and no release has a
            smaller time. The event is the release at that time, which yields all earlier ones.
        accountant: accountant that takes the event, "pld" or "rdp". By default "rdp" if a request
            is `ZCDP` or `BoundedRange`, or is Laplace noise for "replace", and otherwise "pld".

    Returns:
        The event, and its `dp_accounting.NeighboringRelation`: REPLACE_ONE if none is stated.

    Raises:
        ValueError: a request is ex post, its time may be that of a stop, it has a delta, is traced,
            or has the relation of a group of rows; or two relations are stated. Or the accountant
            is unknown or has no event for a request.
        ModuleNotFoundError: dp-accounting is not installed.
    """
    dp, singles = _package(), list(parts(request))
    if accountant is not None:
        check_choice("accountant", accountant, ("pld", "rdp"))
    stated = {f"request {number}": part for number, part in enumerate(singles)}
    relation = shared_relation(**stated) or "replace"
    hint = "dp-accounting has no groups of rows."
    check(relation in _RELATIONS, "relation", relation, f"one of {tuple(_RELATIONS)}", hint)
    replaces, events = relation == "replace", []
    to = _Target(dp, accountant or _accountant(singles, replaces), replaces)
    for event, equal in itertools.groupby(_event(to, planned, one) for one in singles):
        count = len(list(equal))
        # PLDAccountant of dp-accounting 0.6 ignores the count of randomised response.
        once = count == 1 or isinstance(event, dp.RandomizedResponseDpEvent)
        events += [event] * count if once else [dp.SelfComposedDpEvent(event, count)]
    event = dp.ComposedDpEvent(events) if isinstance(request, tuple) else events[0]
    return event, dp.NeighboringRelation[_RELATIONS[relation]]


def from_dp_event(event: Any, neighbours: Any, *, change: int | None = None) -> Request:
    """Return an event of the package dp-accounting as a request, or as a tuple of requests.

    The request costs at least as much as the event, and states the relation of the neighbours.

        >>> event, neighbours = nrjax.composition.to_dp_event(nrjax.composition.GDP(0.25))
        >>> nrjax.composition.from_dp_event(event, neighbours, change=1)
        GDP(mu=0.25)

    Args:
        event: event of Gaussian, Laplace or discrete Laplace noise, of randomised response or
            zCDP, or a composition of such events.
        neighbours: `dp_accounting.NeighboringRelation` of the event, ADD_OR_REMOVE_ONE or
            REPLACE_ONE.
        change: largest change of the value between neighbours, in units of the norm that a noise
            multiplier refers to. dp-accounting defines it as the norm of a row, so None is 1 for
            ADD_OR_REMOVE_ONE, and 2 for REPLACE_ONE. Events of `to_dp_event` have 1.

    Raises:
        ValueError: an event is not private, or of another class, such as one with sampling.
        ModuleNotFoundError: dp-accounting is not installed.
    """
    dp, inf = _package(), math.inf
    relations = {dp.NeighboringRelation[name]: key for key, name in _RELATIONS.items()}
    expected = f"one of {', '.join(_RELATIONS.values())}"
    check(neighbours in relations, "neighbours", neighbours, expected)
    relation: Any = {"relation": relations[neighbours]}
    replaced = relations[neighbours] == "replace"
    change = check_integer("change", 1 + replaced if change is None else change, 1, 2)

    def convert(event: Any) -> Request:
        match event:
            case dp.NoOpDpEvent():
                return ()
            case dp.ComposedDpEvent(events=events):
                return tuple(part for one in events for part in parts(convert(one)))
            case dp.SelfComposedDpEvent(event=repeated, count=count):
                once = tuple(parts(convert(repeated)))
                return once * check_integer("count", count, 0, _MOST // max(len(once), 1))
            case dp.GaussianDpEvent(noise_multiplier=noise) if 0 < noise < inf:
                return requests.GDP(_quotient(change, float(noise), math.inf), **relation)
            case dp.LaplaceDpEvent(noise_multiplier=noise) if 0 < noise < inf:
                return requests.LaplaceMechanism(change, float(noise), **relation)
            case dp.dp_event.DiscreteLaplaceDpEvent(noise_parameter=a, sensitivity=size) if (
                inf > a > 0
            ):
                time = _quotient(1, float(a))
                return requests.DiscreteLaplaceReduction(change * float(size), time, **relation)
            case dp.RandomizedResponseDpEvent(noise_parameter=p, num_buckets=k) if (
                replaced and 0 < p <= 1 and k > 1
            ):
                odds = float(k) * (1 - float(p)) / float(p)
                return requests.Pure(math.log1p(odds) * (1 + SLACK), **relation)
            case dp.ZCDpEvent(rho=rho, xi=0):
                return requests.ZCDP(float(rho), **relation)
        expected = f"private noise or zCDP, without sampling, for {neighbours.name}"
        hint = "Charge a filter for an accountant: ExPost(epsilon, delta, notion='hockey-stick')."
        check(False, "event", event, expected, hint)

    return convert(event)
