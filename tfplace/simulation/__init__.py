"""Predicting a placement without running it: Problem x devices -> StepCost, Timeline."""
