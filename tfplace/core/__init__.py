"""The nouns: frozen dataclasses over numpy arrays. Everything else in tfplace is functions between them.

Array axes: [V] ops, [T] tensors, [E] edges, [U] units (what a placer decides), [D] devices.
"""
