"""Studies: cases run many times under common random numbers, their results and what they show."""
