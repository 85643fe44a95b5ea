"""Configurations: their settings, and how they are read."""
