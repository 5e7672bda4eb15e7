"""Studies: cases run many times with common random numbers, and their results."""
