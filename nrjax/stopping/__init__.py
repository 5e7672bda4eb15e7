"""Stopping rules: when a release is good enough, and what asking costs."""

from nrjax.stopping.public import PublicThreshold

__all__ = ["PublicThreshold"]
