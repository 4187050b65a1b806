"""How a step is measured: warm-up, turns with a reference, what is left out, and what the tracer says."""
