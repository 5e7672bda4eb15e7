"""Audits, which check by simulation whether a stated epsilon and delta hold."""
