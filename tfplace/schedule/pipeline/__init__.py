"""Cutting the order of a graph into the pieces of a pipeline."""
