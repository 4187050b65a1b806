"""What tests of placers and graphs need: random graphs, conformance suites."""
