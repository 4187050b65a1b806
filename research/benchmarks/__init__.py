"""Benchmarks, one a file; each writes its results to `research/data`."""
