"""Reading models: a Keras model, function, SavedModel or graph file becomes an OpGraph."""
