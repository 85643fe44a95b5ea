"""The parts of a pipeline wired, opened, run and closed."""
