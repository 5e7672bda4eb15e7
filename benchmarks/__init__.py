"""Benchmarks. Each file tests one claim and runs on its own."""
