"""Paths drawn from a process, their laws, and p-values, shared by the tests of laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

SOUND = 1e-3  # correct samplers stay above this, after Bonferroni, with the fixed keys used
FAULTY = 1e-9  # planted faults fall below this


def draw_paths(process, times, trials, seed, reuse_key=False, shift=0.0):
    """Return noise (trials, len(times), *shape) and losses (trials, len(times)), in float64.

    Each path starts at the first of the falling `times` and is rewound to that time again, so that
    the program holds each method once. Equal numbers of paths and times share a program.
    """
    keys = jax.random.split(jax.random.key(seed), trials)
    shift = jnp.broadcast_to(jnp.asarray(shift, float), process.shape)
    drawn = _paths(process, keys, jnp.asarray(times, float), reuse_key, shift)
    return tuple(np.asarray(part, float) for part in drawn)


@jax.jit
def _paths(process, keys, times, reuse_key, shift):

    def path(key):
        keys = jax.random.split(key, len(times) + 1)
        keys = jnp.where(reuse_key, jnp.broadcast_to(key, keys.shape), keys)

        def step(state, inputs):
            state = process.rewind(inputs[0], state, inputs[1])
            return state, (process.value(state), process.privacy_loss(state, shift))

        return jax.lax.scan(step, process.init(keys[-1], times[0]), (keys[:-1], times))[1]

    return jax.vmap(path)(keys)


def gaussian(x, s, t):
    """Return P(X < x), P(X <= x) and the log density of X = B_t - B_s, at x.

    The other laws below have the same form. At s = 0, X is the noise itself.
    """
    own = stats.norm(scale=np.sqrt(t - s))
    return own.cdf(x), own.cdf(x), own.logpdf(x)


def laplace(x, s, t):
    """Return the law of an increment of Laplace noise (Whitehouse 2022, equation 3)."""
    own = stats.laplace(scale=t)
    return _jump((s / t) ** 2, x, own.cdf(x), own.cdf(x), own.pdf(x))


def coin(s, t):
    """Return the probability that discrete Laplace noise stays equal from s to t."""
    return (np.sinh(0.5 / t) / np.sinh(0.5 / np.maximum(s, 1e-3))) ** 2


def integers(x, s, t):
    """Return the law of an increment of discrete Laplace noise."""
    own = stats.dlaplace(1 / t)
    return _jump(coin(s, t), x, own.cdf(x - 1), own.cdf(x), own.pmf(x))


def skellam(rate1, rate2):
    def law(x, s, t):
        own = stats.skellam(rate1 * (t - s), rate2 * (t - s))
        values, places = np.unique(x, return_inverse=True)  # a slow function
        return [part[places] for part in (own.cdf(values - 1), own.cdf(values), own.logpmf(values))]

    return law


def _jump(stay, x, below, upto, density):
    """Return the law of an increment that is 0 with probability `stay`."""
    log_density = np.log(stay * (x == 0) + (1 - stay) * density)
    return stay * (x > 0) + (1 - stay) * below, stay * (x >= 0) + (1 - stay) * upto, log_density


def _steps(path, times, law):
    """Return the law of each increment forwards in time, at its drawn value."""
    steps = -np.diff(path, axis=1, append=0.0)
    ends = zip(itertools.chain(times[1:], [0.0]), times, strict=True)
    return [law(steps[:, i], s, t) for i, (s, t) in enumerate(ends)]


def log_density(path, times, law):
    """Return the log density of each of the paths (trials, times, coordinates)."""
    return sum(part[2] for part in _steps(path, times, law)).sum(axis=1)


def path_p(path, times, law):
    """Return the p-value that paths have independent increments of this law."""
    parts = [spread(below, upto, i) for i, (below, upto, _) in enumerate(_steps(path, times, law))]
    return uniform_p(np.concatenate(parts, axis=1))


def spread(below, upto, seed=0):
    """Return numbers that are uniform on (0, 1) if P(X < x) and P(X <= x) at the draws x."""
    return below + np.random.default_rng(seed).random(below.shape) * (upto - below)


def uniform_p(numbers):
    """Return the p-value that columns are uniform, and independent in twos and threes."""
    x = np.sqrt(12) * (numbers - 0.5)
    both = np.concatenate([x, x * x - 1], axis=1)
    i, j = np.triu_indices(both.shape[1], 1)
    a, b, c = np.reshape([*itertools.combinations(range(x.shape[1]), 3)], (-1, 3)).astype(int).T
    means = both, both[:, i] * both[:, j], x[:, a] * x[:, b] * x[:, c]
    return bonferroni([law_p(numbers, stats.uniform.cdf), *(mean_p(part, 0.0) for part in means)])


def bonferroni(p_values):
    """Return the smallest p-value, corrected for their number."""
    p_values = np.concatenate([np.ravel(p) for p in p_values])
    assert np.all(np.isfinite(p_values))
    return min(1.0, len(p_values) * float(p_values.min()))


def mean_p(sample, mean):
    """Return p-values that the columns of `sample` (trials, ...) have these means."""
    sample = np.asarray(sample, float)
    return z_p(sample.mean(0) - mean, sample.std(0) / np.sqrt(len(sample)))


def same_mean_p(first, second):
    """Return p-values that the columns of two samples have equal means."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    variance = first.var(0) / len(first) + second.var(0) / len(second)
    return z_p(first.mean(0) - second.mean(0), np.sqrt(variance))


def law_p(sample, cdf):
    """Return Kolmogorov-Smirnov p-values that the columns of `sample` have this law."""
    return np.array([stats.kstest(column, cdf, method="asymp").pvalue for column in sample.T])


def same_law_p(first, second):
    """Return two-sample Kolmogorov-Smirnov p-values, column by column."""
    pairs = zip(first.T, second.T, strict=True)
    return np.array([stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs])


def z_p(difference, error):
    """Return p-values of differences that should be 0, given their standard errors."""
    # A column without spread is right or wrong for certain.
    z = np.where(error > 0, difference / np.where(error > 0, error, 1), 0)
    return np.where((error == 0) & (difference != 0), 0.0, 2 * stats.norm.sf(np.abs(z)))


@jax.tree_util.register_pytree_node_class
class Altered:
    """A process with a planted fault: methods given by name replace the correct ones."""

    def __init__(self, process, **methods):
        self.process, self.methods = process, methods

    def __getattr__(self, name):
        return self.methods.get(name) or getattr(self.process, name)

    def tree_flatten(self):
        return (self.process,), tuple(self.methods.items())

    @classmethod
    def tree_unflatten(cls, methods, children):
        return cls(*children, **dict(methods))


def fresh(path):
    """Plant a fault: new noise at each step (of another trial), with correct marginals."""
    return np.stack([np.roll(path[:, i], 17 * i, axis=0) for i in range(path.shape[1])], axis=1)
