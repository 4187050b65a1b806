"""Evaluators, and later placers, side by side."""
