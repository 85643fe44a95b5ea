"""A pipeline as a service: logs, health, metrics, systemd."""
