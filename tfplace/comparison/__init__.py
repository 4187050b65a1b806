"""Placers and evaluators side by side."""
