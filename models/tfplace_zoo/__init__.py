"""Benchmark models, one family a file. Knows nothing of tfplace; TensorFlow is loaded only when a model is built."""
