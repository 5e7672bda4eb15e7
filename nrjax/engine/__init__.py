"""One trial: the interaction of its six parts, the checks of these parts, and its steps."""
