"""Policies trained on many graphs, so that they place graphs they have never seen."""
