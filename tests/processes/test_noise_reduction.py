"""The noise-reduction property: a whole transcript costs what its last release alone does."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nrjax.processes import Brownian, Laplace, LaplaceJumps, Skellam
from tests.processes.laws import FAULTY, SOUND, bonferroni, draw_paths, fresh, mean_p

SHIFT = np.array([1.0, -1.0])  # integers, for the Skellam process
TIMES = (4.0, 2.5, 2.0)
RATES = (1.5, 0.75)
TRIALS = 100_000


@functools.cache
def transcripts(process, sign=1):
    """Noise and losses, shared by the tests: a program and two runs for each process."""
    return draw_paths(process, TIMES, TRIALS, seed=2, shift=sign * SHIFT)


def brownian_density(noise, times):
    """Log density of the joint law: Gaussian vectors with covariance min(s, t)."""
    joint = stats.multivariate_normal(cov=np.minimum.outer(times, times))
    return sum(joint.logpdf(noise[:, :, j]) for j in range(noise.shape[2]))


def laplace_density(noise, times):
    """Log density of the joint law, from eq. 3 forwards, with an atom where nothing moved."""
    total = stats.laplace(scale=times[-1]).logpdf(noise[:, -1])
    for i in range(len(times) - 1):
        step = noise[:, i] - noise[:, i + 1]
        stay = (times[i + 1] / times[i]) ** 2
        jump = np.log1p(-stay) + stats.laplace(scale=times[i]).logpdf(step)
        total += np.where(np.abs(step) < 1e-12, np.log(stay), jump)
    return total.sum(axis=1)


def skellam_density(noise, times):
    """Log mass of the joint law: independent increments, each a difference of Poisson counts."""
    times, noise = (*times, 0.0), np.concatenate([noise, np.zeros_like(noise[:, :1])], axis=1)
    steps = stats.skellam(*(np.outer(rate, -np.diff(times))[..., None] for rate in RATES))
    return steps.logpmf(noise[:, :-1] - noise[:, 1:]).sum(axis=(1, 2))


def product(density):
    """The density when every step draws its noise anew."""

    def joint(noise, times):
        return sum(density(noise[:, i : i + 1], times[i : i + 1]) for i in range(len(times)))

    return joint


CASES = [
    pytest.param(Brownian((2,)), brownian_density, id="brownian"),
    pytest.param(Laplace((2,)), laplace_density, id="laplace"),
    pytest.param(LaplaceJumps((2,), 0.5, 6.0), laplace_density, id="jumps"),
    pytest.param(Skellam((2,), *RATES), skellam_density, id="skellam", marks=pytest.mark.long),
]


def transcript_loss(density, noise, times=TIMES):
    return density(noise, times) - density(noise + SHIFT, times)


SLIPPED = -1
"""Fault: the wrong sign before the noise, as Rogers 2023, Theorem 4 prints it.

For Brownian noise `|v|^2/(2t) - <v, B_t>/t`, for Laplace noise `sum_j (|Z_j - v_j| - |Z_j|)/t`: the
loss against `-v`. Its law under x is right, for symmetric noise; its link with the releases is not.
"""


def transcript_error(process, density, rounding, sign=1):
    """Largest error of the loss over transcripts of two and of three releases, in tolerances."""
    noise, losses = (part[:2000] for part in transcripts(process, sign=sign))
    errors = []
    for count in (2, 3):
        joint = transcript_loss(density, noise[:, :count], TIMES[:count])
        allowed = rounding * (1 + np.abs(losses[:, count - 1]))
        errors.append(np.abs(joint - losses[:, count - 1]) / allowed)
    return np.max(errors)


@pytest.mark.parametrize(("process", "density"), CASES)
def test_transcript_costs_what_its_last_release_does(process, density, dtype):
    """By the joint densities of the releases, trial by trial."""
    rounding = 200 * float(jnp.finfo(dtype).eps)
    if isinstance(process, Skellam):
        rounding = 1e-3 if dtype == jnp.float32 else 1e-9  # what it promises
    assert transcript_error(process, density, rounding) <= 1
    assert transcript_error(process, density, rounding, SLIPPED) > 100


@pytest.mark.long
@pytest.mark.parametrize(("process", "density"), CASES)
def test_fresh_noise_costs_more(process, density):
    """Negative control: with new noise at each step the releases before the last cost, too."""
    noise, losses = (fresh(part)[:20_000] for part in transcripts(process))
    extra = transcript_loss(product(density), noise) - losses[:, -1]
    assert extra.mean() > 0
    assert bonferroni([mean_p(extra, 0.0)]) < FAULTY


def reweighting_p(noise, losses):
    """`E_x[g exp(-L)] = E_x'[g]` for functions g of ALL releases and the loss L of the LAST.

    The densities above judge the stated law; this judges the law of what the process draws. Under x
    a release is the noise, under x' it is the noise minus the shift; g is an indicator.
    """

    def events(release):
        first, second, last = release[:, 0], release[:, 1], release[:, 2]
        return np.concatenate(
            [
                first > 0,
                first > 1,
                (first > 0) & (last < 0),
                (first > second) & (last > 0),
                (np.abs(first - last) < 1e-4) & (last > 0),
                first[:, :1] > last[:, 1:],
                second > 2,
                last > 0,
                last < -1,
            ],
            axis=1,
        )

    weighted = events(noise) * np.exp(-losses[:, -1:])
    return bonferroni([mean_p(weighted - events(noise - SHIFT), 0.0)])


@pytest.mark.parametrize(("process", "density"), CASES)
def test_last_loss_changes_the_measure_of_the_whole_transcript(process, density):
    del density
    noise, losses = transcripts(process)
    assert reweighting_p(noise, losses) > SOUND
    assert reweighting_p(fresh(noise), fresh(losses)) < FAULTY
    assert reweighting_p(*transcripts(process, SLIPPED)) < FAULTY
