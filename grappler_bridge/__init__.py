"""The one place that uses TensorFlow's Grappler. It knows TensorFlow, not tfplace."""
