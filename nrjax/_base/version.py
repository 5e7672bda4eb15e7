"""The version of nrjax. `pyproject.toml` reads it from this file."""

__version__ = "1.0.0rc1"
