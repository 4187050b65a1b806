"""Learned placement: policies, the networks they are made of, their features, training and weights."""
