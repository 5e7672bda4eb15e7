"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

__version__ = "0.1.0"
