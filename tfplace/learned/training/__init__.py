"""What policies share: rewards, baselines, losses, features, and how parameters are trained and kept."""
