"""Statistics of trials: samples, exact and paired intervals, anytime statements, and bets."""
