"""The public workloads of Tarnawski et al."""
