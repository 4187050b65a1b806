"""Networks that several policies are made of."""
