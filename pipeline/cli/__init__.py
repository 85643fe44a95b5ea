"""``python -m pipeline``."""
