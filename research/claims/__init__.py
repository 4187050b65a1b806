"""What papers claim, run again."""
