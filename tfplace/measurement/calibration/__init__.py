"""Devices, links and op times as they really are."""
