"""Discrete Laplace noise that is rewound, and the privacy loss of a stop."""

import numpy as np


def probability(t, k):
    """Return the probabilities of discrete Laplace noise."""
    q = np.exp(-1 / t)
    return (1 - q) / (1 + q) * q ** np.abs(k)


def backwards(t, s, z):
    """Return the probabilities of the noise at s, along the last axis, given that at t."""
    stay = (np.sinh(0.5 / t) / np.sinh(0.5 / s)) ** 2
    joint = probability(s, z) * (
        stay * np.eye(z.size) + (1 - stay) * probability(t, z[:, None] - z)
    )
    return joint / probability(t, z)[:, None]


def payoff(order, shift, t, charge, z):
    """Return `exp(l (L - C))` for noise z at the stop."""
    loss = (np.abs(z + shift) - np.abs(z)) / t
    return np.exp((order - 1) * (loss - charge))
