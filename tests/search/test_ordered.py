"""The order of phases that an answer tells: the best that a program can keep to."""
