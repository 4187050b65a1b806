"""What policies see: units, graphs and devices as plain arrays."""
