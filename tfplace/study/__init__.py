"""What every placer is given and all of them share: a study of a problem within a budget, and views of it."""
