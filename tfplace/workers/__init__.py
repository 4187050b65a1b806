"""Where the controllers of a policy run: in this process, or in others."""
