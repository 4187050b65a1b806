"""Scheduling on flat arrays, which several placers share: list scheduling, constraint programs, pipelines."""
