"""Studies of tfplace: suites, benchmarks, claims of papers, and their results. Not part of the wheel."""
