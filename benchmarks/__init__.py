"""Benchmarks: one claim a file, each runnable alone."""
