"""Speed of a configuration on this machine: each stage alone, the whole, and the bottleneck."""
