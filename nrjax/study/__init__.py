"""Studies, which simulate named cases with common random numbers and store the results."""
