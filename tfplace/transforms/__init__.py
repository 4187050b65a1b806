"""Graphs to graphs: one step with its batch in several slices."""
