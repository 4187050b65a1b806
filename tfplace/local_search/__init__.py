"""Local search: moves, what they cost and look like, annealing, and placements of groups."""
