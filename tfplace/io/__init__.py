"""File formats: graphs and problems as archives that are read without TensorFlow, and append-only logs."""
