"""Simulation of many trials: batches, lanes, programs, sweeps, and counting in histograms."""
