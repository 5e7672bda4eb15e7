"""Reproductions of published experiments, one study with settings and a report each."""

PAPERS = ("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023")
"""Names of the studies, in the order in which help lists them."""
