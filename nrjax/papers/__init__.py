"""Reproductions of published experiments, each as a study with settings and a report."""

PAPERS = ("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023")
"""Names of the studies, in the order in which the command's help lists them."""
