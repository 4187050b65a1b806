"""Which ops are decided together: OpGraph -> Grouping, and the Problem a placer gets."""
