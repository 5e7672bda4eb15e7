"""Many trials: batches, lanes, compiled programs, sweeps, and counting in histograms."""
