"""Running a placement: Placement -> a TensorFlow program."""
