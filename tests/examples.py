"""Names in the examples of docstrings and pages, and the names that need an example."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np

import nrjax

NAMES = {"nrjax": nrjax, "jax": jax, "jnp": jnp, "np": np, "dataclasses": dataclasses}
"""Names that an example may use without an import."""
FLAT = [name for name in nrjax.__all__ if not isinstance(getattr(nrjax, name), types.ModuleType)]
