"""The one loop that owns budget, history and seeds."""
