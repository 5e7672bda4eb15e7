"""The papers whose experiments nrjax reproduces: each a study, with its own settings and words."""

PAPERS = ("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023")
"""Modules here that are a study, in the order in which help lists them."""
