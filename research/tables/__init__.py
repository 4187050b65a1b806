"""Results of suites as tables and plots."""
