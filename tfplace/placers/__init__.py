"""Placement methods, one a file."""
