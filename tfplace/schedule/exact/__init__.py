"""Placement as constraint programs for CP-SAT, which runs in a process of its own."""
