"""How well simulated step times predict measured ones."""
