"""Suites of cases, run cell by cell, and what is made of their results."""
