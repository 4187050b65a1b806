"""List scheduling: by a given order or by the earliest start, with ranks, favorite children and fused groups."""
