"""How fast a configuration is here: each stage alone, the whole, and what holds it up."""
