"""Which forward ops to compute again, so that a step takes less memory."""
