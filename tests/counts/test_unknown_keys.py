"""Counts of unknown keys against exact divergences, and the one-shot baselines."""

import dataclasses
import decimal
import functools
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nrjax
from nrjax.counts import KeysShown, KeyThreshold, shown, unknown_keys
from nrjax.counts.unknown_keys import KeyNoise, UnknownKeysGuarantee
from nrjax.processes import Brownian
from nrjax.processes._kernel import laplace
from tests.counts.keys_oracle import Levels
from tests.marks import long_except

pytestmark = pytest.mark.numerical

DELTA, COUNTS, TRIALS = 0.1, np.array([6.0, 1.0, 1.0]), 40_000
KINDS = "brownian", "laplace"


@functools.cache
def mechanism(kind, keys_per_user=1, delta=DELTA):
    """Return the mechanism on three levels."""
    levels = 0.5, 2.0, 3
    options = {"keys_per_user": keys_per_user, "delta": delta, "noise": kind, "levels": levels}
    return unknown_keys(COUNTS, **options)


def stated(found):
    """Return the noise levels, epsilons and curve `1 + u` of a mechanism."""
    times = np.asarray(found.guarantee.fixed_times, float)
    unit = np.sqrt(times) if found.process.kind == "brownian" else times
    epsilons = np.asarray(found.guarantee.epsilon(found.guarantee.fixed_times), float)
    return times, epsilons, 1 + float(found.process.quantile) * unit, unit


def worst(kind, times, heights, epsilons, lonely):
    """Return the largest divergence in either direction over counts of the common key."""
    levels = Levels(kind, times, heights)
    counts = {2, *(max(2, round(heights[-1] * part)) for part in (1, 2))}
    return max(max(levels.divergences(epsilons, count, lonely)) for count in counts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys_per_user", [1, 3])
def test_the_hockey_stick_divergence_is_at_most_delta(kind, keys_per_user):
    found = mechanism(kind, keys_per_user)
    times, epsilons, heights, _ = stated(found)
    for lonely in {0, keys_per_user - 1, keys_per_user}:
        assert worst(kind, times, heights, epsilons, lonely) <= found.guarantee.delta <= DELTA


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_one_user_is_shown_as_often_as_stated(kind):
    found = mechanism(kind)
    times, _, heights, _ = stated(found)
    chance = 1 - Levels(kind, times, heights).hidden(2, 1)
    part = float(found.guarantee.crossing)
    low = part * (1 - 1e-4) if kind == "brownian" else part / 3  # a union bound over three levels
    assert low <= chance <= part


def one_look(kind, unit):
    """Return the curve of a single level, used at all levels."""
    law = stats.norm if kind == "brownian" else stats.laplace
    return 1 + law.isf(DELTA / 2 if kind == "brownian" else DELTA) * unit


FAULTS = {  # keys per user, and the curve 1 + u
    "threshold of one key per user": (3, lambda kind, unit: stated(mechanism(kind))[2]),
    "threshold not raised for further levels": (1, one_look),
    "key of count 0 can be shown": (1, lambda kind, unit: stated(mechanism(kind))[2] - 1),
    "variance for standard deviation": (
        1,
        lambda kind, unit: 1 + mechanism(kind).process.quantile * (unit**2 / unit[0]),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_exceed_delta(kind, fault):
    keys_per_user, curve = FAULTS[fault]
    times, epsilons, _, unit = stated(mechanism(kind, keys_per_user))
    heights = np.asarray(curve(kind, unit))
    assert worst(kind, times, heights, epsilons, keys_per_user) > 1.1 * DELTA


class Swapped(KeyNoise):
    """A planted fault: `dt` for `sqrt(dt)` in the noise of a rewind."""

    def rewind(self, key, state, time):
        now, noise = state.noise.time, state.noise
        draw = Brownian(self.shape).draw(key, noise.value.dtype)
        gap = time * (now - time) / now
        return self._seen(
            noise._replace(value=time / now * noise.value + gap * draw, time=time), state.shown
        )


class Forgetful(KeyNoise):
    """A planted fault: fresh noise at each level."""

    def rewind(self, key, state, time):
        return self._seen(self._plain.init(key, time), state.shown)


@jax.jit
def _shown(keys, process, times):
    def path(key):
        state, seen = process.init(jax.random.fold_in(key, 0), times[0]), []
        for i in range(len(times)):
            if i:
                state = process.rewind(jax.random.fold_in(key, i), state, times[i])
            seen.append(process.value(state) != -process.counts)
        return jnp.stack(seen)

    return jnp.mean(jax.vmap(path)(keys), axis=0)


def largest_error(kind, process, keys_per_user=1):
    """Return the largest distance of shown fractions from the exact ones, in standard errors."""
    times, _, heights, _ = stated(mechanism(kind))
    keys = jax.random.split(jax.random.key(3), TRIALS)
    seen = np.asarray(_shown(keys, process, jnp.asarray(times, jnp.result_type(float))), float)
    levels = Levels(kind, times, heights)
    exact = np.array([[1 - levels.hidden(i, count) for count in COUNTS] for i in range(3)])
    return np.max(np.abs(seen - exact) / np.sqrt(exact * (1 - exact) / TRIALS))


@pytest.mark.parametrize("kind", long_except(KINDS, "brownian"))
def test_keys_are_shown_with_the_exact_probabilities(kind):
    process = mechanism(kind).process
    assert largest_error(kind, process) < 4
    for fault in (Forgetful, *([Swapped] if kind == "brownian" else [])):
        assert largest_error(kind, fault(COUNTS, process.quantile, kind)) > 6, fault


@pytest.mark.long
def test_runs_show_what_the_rule_sees_and_pay_the_stated_epsilon():
    counts = [900, 400, 120, 1, 1]
    for kind, changes in zip(KINDS, (math.sqrt(3), 3), strict=True):
        found = unknown_keys(counts, keys_per_user=3, delta=1e-6, noise=kind)
        assert float(found.guarantee.sensitivity) == pytest.approx(changes)
        interaction = found.until(KeysShown.within(0.1, found), at_least=2)
        outcome = nrjax.run_until(jax.random.key(0), interaction)
        assert outcome.stopped
        names = shown("ABCDE", outcome.release)
        assert set("AB") <= set(names) <= set("ABC")
        assert list(names.values()) == sorted(names.values(), reverse=True)
        assert np.all(np.asarray(outcome.release)[3:] == 0)
        assert outcome.epsilon == found.guarantee.epsilon(outcome.time)
        assert nrjax.guarantees.notions.notion_of(interaction.guarantee) == "hockey-stick"
        replaced = unknown_keys(counts, keys_per_user=3, delta=1e-6, noise=kind, relation="replace")
        assert float(replaced.guarantee.sensitivity) / changes == pytest.approx(
            2 if kind == "laplace" else math.sqrt(2)
        )
        assert np.isnan(found.guarantee.epsilon(1.2345))
        assert found.guarantee.epsilon(found.guarantee.time(1.0)) <= 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"counts": [3, 0]}, "counts must be at least 1"),
        ({"keys_per_user": 0}, "keys_per_user must be"),
        ({"delta": 0.6}, "delta must be above 0 and at most 0.5 with laplace"),
        (
            {"delta": 0.3, "noise": "brownian"},
            "delta must be above 0 and at most 0.2 with brownian",
        ),
        ({"delta": 0.1, "noise": "brownian"}, r"levels must be epsilons .* lower delta"),
        ({"noise": "uniform"}, "noise must be '"),
        ({"relation": "swap"}, "relation must be"),
    ],
)
def test_wrong_arguments_are_refused(change, words):
    options = {"counts": [3, 1], "keys_per_user": 1, "delta": 1e-6} | change
    with pytest.raises(ValueError, match=words):
        unknown_keys(options.pop("counts"), **options)


def test_noise_that_hides_no_keys_is_refused():
    found = mechanism("laplace")
    with pytest.raises(ValueError, match="guarantee must be for laplace noise"):
        nrjax.Mechanism(COUNTS, nrjax.Laplace((3,)), found.guarantee)


# One release


OPTIMAL = (
    *(("1", "1e-6", 1, 1, 1e-06), ("1", "1e-6", 1, 5, 8.57910248837216e-05)),
    *(("1", "1e-6", 1, 14, 0.6998870989884536), ("1", "1e-6", 1, 20, 0.9992566750275028)),
    *(("0.3", "1e-6", 1, 10, 5.4552112194693107e-05), ("0.3", "1e-6", 1, 40, 0.4651984969212113)),
    *(("0.3", "1e-6", 1, 50, 0.9733765169927194), ("2", "0.05", 1, 2, 0.41945280494653253)),
    *(("2", "0.05", 1, 3, 0.9281982450870485), ("1", "1e-6", 3, 20, 0.0006612298688103238)),
    *(("1", "1e-6", 3, 40, 0.5202371425266316), ("1", "1e-6", 3, 60, 0.9993902790744336)),
    *(("3", "1e-8", 2, 13, 0.42259311476743233), ("3", "1e-8", 2, 20, 0.9999841017005957)),
)
"""Epsilon, delta, keys per user, users, and the probability of keeping a key by python-dp 1.1.5.

It is `create_truncated_geometric_partition_strategy(...).probability_of_keep(users)`.
"""


def chances_of(trial):
    """Return the probabilities with which counts 1, 2, ... are shown, times 2^64."""
    high, low = np.asarray(trial.chances, object)
    chances = [(int(a) << 32) + int(b) for a, b in zip(high, low, strict=True)]
    return [*(x for x in chances if x < 2**64 - 1), 2**64]


@pytest.mark.parametrize(("epsilon", "delta", "keys", "users", "known"), OPTIMAL)
def test_geometric_noise_is_the_optimal_partition_selection(epsilon, delta, keys, users, known):
    options = {"epsilon": float(epsilon), "delta": float(delta), "keys_per_user": keys}
    chances = chances_of(KeyThreshold.fitted([5], "geometric", **options))
    shown = Fraction(chances[min(users, len(chances)) - 1], 2**64)
    with decimal.localcontext(prec=60):
        e = (decimal.Decimal(epsilon) / keys).exp()
        each, optimal = 1 - ((1 - decimal.Decimal(delta)).ln() / keys).exp(), decimal.Decimal(0)
        for _ in range(users):
            optimal = min(e * optimal + each, 1 - (1 - optimal - each) / e)
        assert float(optimal) == pytest.approx(known, rel=1e-14)
    assert Fraction(optimal) * (1 - Fraction(1e-8)) <= shown <= Fraction(optimal)


def excess(chances, epsilon, delta):
    """Return the largest excess of one key's divergences over delta, both orders, all counts.

    A count n with noise `threshold - m` is shown with the probability of m, for all m < n.
    """
    steps = [b - a for a, b in itertools.pairwise([0, *chances])]
    most = -math.inf
    with decimal.localcontext(prec=60):
        e = decimal.Decimal(epsilon).exp()
        for count in range(len(steps) + 2):
            laws = []
            for held in (count, count + 1):
                law = {held - m: p for m, p in enumerate(steps[:held])}
                laws.append({**law, "hidden": 2**64 - sum(law.values())})
            for p, q in (laws, laws[::-1]):
                most = max(most, sum(max(0, x - e * q.get(key, 0)) for key, x in p.items()))
        return most / 2**64 - decimal.Decimal(delta)


@pytest.mark.parametrize(
    ("e", "delta"), [(1.0, 1e-3), (0.3, 1e-6), (2.0, 0.05), (7.5, 1e-9), (30.0, 1e-6)]
)
def test_geometric_noise_is_private_and_shows_as_many_keys_as_possible(e, delta):
    options = {"epsilon": e, "delta": delta, "keys_per_user": 1}
    trial = KeyThreshold.fitted([5], "geometric", **options)
    chances = chances_of(trial)
    assert -1e-3 * delta < excess(chances, e, delta) <= 0
    assert excess(chances[1:], e, delta) > 0  # planted faults: one user fewer
    assert excess([min(x + 2**60, 2**64) for x in chances], e, delta) > 0
    steps = np.diff([0, *chances])
    assert np.argmax(steps) == trial.threshold  # the likeliest noise is 0


def gaussian_divergence(epsilon, x):
    if x == 0:
        return 0.0
    phi = stats.norm.cdf
    return phi(x / 2 - epsilon / x) - math.exp(epsilon) * phi(-x / 2 - epsilon / x)


def one_shot(trial, m, changes, epsilon):
    """Return the exact divergence of x from x', the larger over the number of lonely keys.

    Wilkins et al. 2024, for Gaussian noise. A pure divergence of the common keys is 0.
    """
    law = stats.norm if trial.method == "gaussian" else stats.laplace
    hidden, most = law.cdf((trial.threshold - 1) / trial.scale), 0.0
    for lonely in range(m + 1):
        kept, other = hidden**lonely, changes - lonely
        for shift, share in ((-math.log(kept), kept), (math.log(kept), 1.0)):
            level = epsilon + shift
            if trial.method == "gaussian":
                inner = gaussian_divergence(level, math.sqrt(other) / trial.scale)
            else:
                inner = max(0.0, -math.expm1((level - other / trial.scale) / 2))
            most = max(most, share * inner + (1 - kept if share < 1 or not lonely else 0))
    return most


@pytest.mark.parametrize("method", ["laplace", "gaussian"])
@pytest.mark.parametrize(("m", "relation"), [(1, "add-remove"), (3, "add-remove"), (2, "replace")])
def test_one_release_is_private(method, m, relation):
    options = {"epsilon": 1.0, "delta": 1e-3, "relation": relation}
    trial = KeyThreshold.fitted([5], method, keys_per_user=m, **options)
    changes = m if relation == "add-remove" else 2 * m
    assert one_shot(trial, m, changes, 1.0) <= 1e-3
    assert one_shot(trial, m, changes, 1.0) > 0.4e-3
    if m > 1:  # planted fault: the threshold and the noise of one key per user
        fault = KeyThreshold.fitted([5], method, keys_per_user=1, **options)
        assert one_shot(fault, m, changes, 1.0) > 1e-3


@pytest.mark.parametrize("delta", [1e-4, 1e-8, 3.6e-10, 1.2e-10])
def test_the_tail_of_laplace_draws_is_at_most_delta(delta):
    """All draws beyond the curve of one level are counted. The ideal quantile is a fault."""
    trial = KeyThreshold.fitted([5], "laplace", epsilon=1.0, delta=delta, keys_per_user=1)
    found = unknown_keys([5], keys_per_user=1, delta=delta, levels=(1.0, 1.0001, 1))
    dtype = jnp.result_type(float)
    rarest = jnp.arange(2**20, dtype=jnp.uint32 if dtype == jnp.float32 else jnp.uint64)
    noise = np.asarray(laplace(2 * rarest, dtype), float)
    bits = 8 * dtype.itemsize

    def tail(quantile):
        return np.sum(noise > quantile) / 2.0**bits

    raised = found.process.quantile * (1 + 64 * float(jnp.finfo(dtype).eps))
    assert max(map(tail, ((trial.threshold - 1) / trial.scale, raised))) <= delta
    if bits == 32 and delta <= 1e-8:
        assert tail(-math.log(2 * delta)) > delta


@pytest.mark.parametrize("method", ["laplace", "gaussian", "geometric"])
def test_one_release_shows_keys_with_the_exact_probabilities(method):
    counts = np.array([1.0, 2.0, 4.0])
    trial = KeyThreshold.fitted(counts, method, epsilon=1.0, delta=0.1, keys_per_user=1)
    run = jax.jit(jax.vmap(type(trial).run, (None, 0)))
    release = np.asarray(run(trial, jax.random.split(jax.random.key(1), TRIALS)).release)
    gap = trial.threshold - counts
    if method == "geometric":
        chances = chances_of(trial)
        exact = np.array([chances[min(int(n), len(chances)) - 1] / 2**64 for n in counts])
        assert np.all(release == np.round(release))
        noise, number = np.unique(release[:, 2][release[:, 2] > 0] - 4, return_counts=True)
        steps = np.diff([0.0, *(x / 2**64 for x in chances)])
        steps = steps[(trial.threshold - noise).astype(int)]
        assert np.all(np.abs(number / TRIALS - steps) < 4.5 * np.sqrt(steps / TRIALS))
    else:
        exact = (stats.norm if method == "gaussian" else stats.laplace).sf(gap / trial.scale)

    def error(exact):
        return np.max(
            np.abs(np.mean(release > 0, 0) - exact) / np.sqrt(exact * (1 - exact) / TRIALS)
        )

    assert error(exact) < 4
    assert error(np.roll(exact, 1)) > 6


def whole_counts(trial, count, width):
    """Return the probabilities that the noisy count rounds to `count - width`, ..., exactly.

    Draws fall along the words, so that the words of a whole number are found by bisection.
    """
    edges = np.arange(-width, width + 2) - 0.5 + count
    scale = jnp.float32(trial.scale)
    above = np.zeros(edges.size)
    for sign in (0, 1):
        low, high = np.zeros(edges.size, np.int64), np.full(edges.size, 2**31)
        for _ in range(32):
            middle = (low + high) // 2
            words = jnp.asarray((np.minimum(middle, 2**31 - 1) << 1 | sign).astype(np.uint32))
            noisy = jnp.float32(count) + scale * laplace(words, jnp.float32)
            further = (np.asarray(noisy) >= edges) != sign
            active = low < high
            low = np.where(active & further, middle + 1, low)
            high = np.where(active & ~further, middle, high)
        above += 2**31 - low if sign else low
    return -np.diff(above) / 2.0**32


@pytest.mark.parametrize(
    ("epsilon", "least", "delta", "factor"),
    [(0.1, 4e-8, 1e-7, 1.0), (0.01, 1.5e-6, 2.5e-6, 1.001), (0.001, 1.5e-5, 2.5e-5, 2.0)],
)
def test_the_bits_of_laplace_noise_cost_what_the_table_states(epsilon, least, delta, factor):
    """Both neighbours, rounded to whole numbers; the key is shown with probability 1."""
    with jax.enable_x64(False):
        options = {"epsilon": epsilon, "delta": 1e-6, "keys_per_user": 1}
        trial = KeyThreshold.fitted([10**6], "laplace", **options)
        width = math.ceil(25 / epsilon)
        first, second = (whole_counts(trial, count, width) for count in (10**6, 10**6 + 1))
    assert first.sum() == second.sum() == 1
    first, second = np.append(first, 0), np.append(0, second)

    def divergence(level):
        pairs = (first, second), (second, first)
        return max(np.maximum(a - math.exp(level) * b, 0).sum() for a, b in pairs)

    assert least <= divergence(epsilon) <= delta
    assert divergence(factor * epsilon) <= 1e-6


@pytest.mark.parametrize(("keys", "relation", "factor"), [(1, "add-remove", 1), (3, "replace", 6)])
def test_laplace_noise_refuses_epsilons_that_its_bits_do_not_resolve(keys, relation, factor):
    options = {"delta": 1e-9, "keys_per_user": keys, "relation": relation}
    least = 0.001 * factor
    with jax.enable_x64(False):
        KeyThreshold.fitted([5], "laplace", epsilon=least, **options)
        with pytest.raises(ValueError, match=rf"^epsilon must be at least {least:g} for Laplace"):
            KeyThreshold.fitted([5], "laplace", epsilon=0.99 * least, **options)
    with jax.enable_x64(True):
        KeyThreshold.fitted([5], "laplace", epsilon=0.1 * least, **options)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("keys", [3, 7, 11])
def test_delta_is_rounded_up_for_narrow_crossings(dtype, keys):
    for number in (1e-3, 2e-4, 0.0123):
        crossing = dtype(number)
        guarantee = UnknownKeysGuarantee(
            nrjax.PureGuarantee(1.0), crossing, np.array([1.0, 0.5]), keys
        )
        assert float(guarantee.delta) >= keys * float(crossing)
        assert float(guarantee.delta) <= keys * float(crossing) * (1 + 1e-6)
        cost = nrjax.composition.ExPost.of(guarantee, 1.0)
        assert float(cost.delta) >= keys * float(crossing)


def test_noise_for_other_counts_is_refused():
    found = mechanism("laplace")
    for make in (
        lambda: dataclasses.replace(found, value=COUNTS + 1),
        lambda: dataclasses.replace(found.until(at_least=1.0), value=COUNTS[::-1]),
    ):
        with pytest.raises(ValueError, match="value must be the value of its KeyNoise"):
            make()


def test_count_keys_bounds_each_person():
    people = ["Ann"] * 4 + ["Bo"] * 2 + ["Cy"]
    keys = ["tea", "tea", "milk", "beer", "tea", "milk", "tea"]
    whole = nrjax.datasets.count_keys(people, keys, most=3)
    assert dict(zip(whole.items, whole.counts, strict=True)) == {"beer": 1, "milk": 2, "tea": 3}
    drawn = [nrjax.datasets.count_keys(people, keys, most=1, seed=seed) for seed in range(300)]
    assert all(counts.counts.sum() == 3 and counts.counts.min() >= 1 for counts in drawn)
    beer = np.mean(["beer" in counts.items for counts in drawn])
    assert abs(beer - 1 / 3) < 4 * math.sqrt(2 / 9 / 300)  # per distinct key, not per row


def shuffled_keys(people, keys, most):
    """A planted fault: one shuffle of all pairs, by a seed that is fixed."""
    pairs = np.random.default_rng(0).permutation(np.unique(np.stack([people, keys]), axis=1).T)
    kept = [pairs[pairs[:, 0] == person][:most, 1] for person in np.unique(people)]
    return np.bincount(np.concatenate(kept), minlength=50)


def kept_keys(people, keys, most):
    counts, table = nrjax.datasets.count_keys(people, keys, most), np.zeros(50)
    table[list(counts.items)] = counts.counts
    return table


def test_a_person_changes_no_key_that_others_keep():
    """`keys_per_user` covers the keys of one person only."""
    people, keys = np.repeat(np.arange(40), 5), np.random.default_rng(1).integers(0, 50, 200)

    def change(count):
        whole, most = count(people, keys, 2), 0.0
        for left_out in (0, 20, 39):
            kept = people != left_out
            most = max(most, np.abs(whole - count(people[kept], keys[kept], 2)).sum())
        return most

    assert change(kept_keys) == 2
    assert change(shuffled_keys) > 10
