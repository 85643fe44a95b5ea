"""Frames into the model's input."""
