"""The published layer profiles of PipeDream, and the optimum of its programme."""
