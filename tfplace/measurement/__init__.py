"""Real devices: what there is, and how long placements really take."""
