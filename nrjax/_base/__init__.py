"""Code that every package builds on: random bits, numbers, checks, keys, and outcomes."""
