"""Learned placement, one paper a file. Every policy is a placer; see `tfplace.registry.PLACERS`."""
