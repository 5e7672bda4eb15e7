"""Many trials: batches, lanes, compiled programs, sweeps, and folding into sketches."""
