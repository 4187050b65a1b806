"""Placements shown to people: tables, HTML, traces."""
