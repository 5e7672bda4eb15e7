"""Paths drawn from a process, their laws, and p-values that judge them; shared by tests of laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

SOUND = 1e-3  # a right sampler stays above this, after Bonferroni, with the fixed keys used
FAULTY = 1e-9  # a planted fault falls below this


def draw_paths(process, times, trials, seed, reuse_key=False, shift=0.0):
    """Noise (trials, len(times), *shape) and losses (trials, len(times)), in float64.

    The first of the falling `times` is both the start and a rewind to where it is: the program
    holds each method once. Files that draw as many paths of as many times share programs.
    """
    keys = jax.random.split(jax.random.key(seed), trials)
    shift = jnp.broadcast_to(jnp.asarray(shift, float), process.shape)
    drawn = _paths(process, keys, jnp.asarray(times, float), reuse_key, shift)
    return tuple(np.asarray(part, float) for part in drawn)


@jax.jit
def _paths(process, keys, times, reuse_key, shift):
    """One program for a process, whatever the key, the times and the shift."""

    def path(key):
        keys = jax.random.split(key, len(times) + 1)
        keys = jnp.where(reuse_key, jnp.broadcast_to(key, keys.shape), keys)

        def step(state, inputs):
            state = process.rewind(inputs[0], state, inputs[1])
            return state, (process.value(state), process.privacy_loss(state, shift))

        return jax.lax.scan(step, process.init(keys[-1], times[0]), (keys[:-1], times))[1]

    return jax.vmap(path)(keys)


def gaussian(x, s, t):
    """Law of what Brownian noise gains from time s to t, at x: P(X < x), P(X <= x), log density.

    From s = 0 on it is that of the noise itself; so are the laws that follow.
    """
    own = stats.norm(scale=np.sqrt(t - s))
    return own.cdf(x), own.cdf(x), own.logpdf(x)


def laplace(x, s, t):
    """Equation 3 of Whitehouse 2022."""
    own = stats.laplace(scale=t)
    return _jump((s / t) ** 2, x, own.cdf(x), own.cdf(x), own.pdf(x))


def coin(s, t):
    """Probability that discrete Laplace noise gains nothing from s to t."""
    return (np.sinh(0.5 / t) / np.sinh(0.5 / np.maximum(s, 1e-3))) ** 2


def integers(x, s, t):
    """Discrete Laplace noise."""
    own = stats.dlaplace(1 / t)
    return _jump(coin(s, t), x, own.cdf(x - 1), own.cdf(x), own.pmf(x))


def skellam(rate1, rate2):
    def law(x, s, t):
        own = stats.skellam(rate1 * (t - s), rate2 * (t - s))
        values, places = np.unique(x, return_inverse=True)  # a slow function
        return [part[places] for part in (own.cdf(values - 1), own.cdf(values), own.logpmf(values))]

    return law


def _jump(stay, x, below, upto, density):
    """Nothing with probability `stay`, else of a law; densities beside a measure with an atom."""
    log_density = np.log(stay * (x == 0) + (1 - stay) * density)
    return stay * (x > 0) + (1 - stay) * below, stay * (x >= 0) + (1 - stay) * upto, log_density


def _steps(path, times, law):
    """The law of each step forwards, at what it was."""
    steps = -np.diff(path, axis=1, append=0.0)
    ends = zip(itertools.chain(times[1:], [0.0]), times, strict=True)
    return [law(steps[:, i], s, t) for i, (s, t) in enumerate(ends)]


def log_density(path, times, law):
    """Of paths (trials, times, coordinates), (trials,)."""
    return sum(part[2] for part in _steps(path, times, law)).sum(axis=1)


def path_p(path, times, law):
    """p-value of paths (trials, times, coordinates): independent steps forwards, of this law."""
    parts = [spread(below, upto, i) for i, (below, upto, _) in enumerate(_steps(path, times, law))]
    return uniform_p(np.concatenate(parts, axis=1))


def spread(below, upto, seed=0):
    """Uniform on (0, 1) where these are P(X < x) and P(X <= x) at the x that were drawn."""
    return below + np.random.default_rng(seed).random(below.shape) * (upto - below)


def uniform_p(numbers):
    """p-value of columns (trials, k): uniform on (0, 1), and independent by twos and threes."""
    x = np.sqrt(12) * (numbers - 0.5)
    both = np.concatenate([x, x * x - 1], axis=1)
    i, j = np.triu_indices(both.shape[1], 1)
    a, b, c = np.reshape([*itertools.combinations(range(x.shape[1]), 3)], (-1, 3)).astype(int).T
    means = both, both[:, i] * both[:, j], x[:, a] * x[:, b] * x[:, c]
    return bonferroni([law_p(numbers, stats.uniform.cdf), *(mean_p(part, 0.0) for part in means)])


def bonferroni(p_values):
    """The smallest p-value, corrected for their number."""
    p_values = np.concatenate([np.ravel(p) for p in p_values])
    assert np.all(np.isfinite(p_values))
    return min(1.0, len(p_values) * float(p_values.min()))


def mean_p(sample, mean):
    """p-values that the columns of `sample` (trials, ...) have these means."""
    sample = np.asarray(sample, float)
    return z_p(sample.mean(0) - mean, sample.std(0) / np.sqrt(len(sample)))


def same_mean_p(first, second):
    """p-values that the columns of two samples have equal means."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    variance = first.var(0) / len(first) + second.var(0) / len(second)
    return z_p(first.mean(0) - second.mean(0), np.sqrt(variance))


def law_p(sample, cdf):
    """Kolmogorov-Smirnov p-values that the columns of `sample` (trials, k) have this law."""
    return np.array([stats.kstest(column, cdf, method="asymp").pvalue for column in sample.T])


def same_law_p(first, second):
    """Two-sample Kolmogorov-Smirnov p-values, column by column."""
    pairs = zip(first.T, second.T, strict=True)
    return np.array([stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs])


def z_p(difference, error):
    """p-values of differences that should be 0, given their standard errors."""
    # A column without spread (nobody ever stays) is right or wrong for certain.
    z = np.where(error > 0, difference / np.where(error > 0, error, 1), 0)
    return np.where((error == 0) & (difference != 0), 0.0, 2 * stats.norm.sf(np.abs(z)))


@jax.tree_util.register_pytree_node_class
class Altered:
    """A process with a fault planted in it: methods given by name replace the sound ones."""

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
    """Fault: new noise at each step, right in every marginal: each step is another trial's."""
    return np.stack([np.roll(path[:, i], 17 * i, axis=0) for i in range(path.shape[1])], axis=1)
