"""Simulations in small tiles on one device, with one key."""

import jax

import nrjax

KEY = jax.random.key(3)
ONE = tuple(jax.devices()[:1])
SMALL = nrjax.Batching(tile=16, lanes=32, devices=ONE)


def simulate(trial, trials, batching=SMALL, **options):
    return nrjax.simulate(KEY, trial, trials=trials, batching=batching, **options)
