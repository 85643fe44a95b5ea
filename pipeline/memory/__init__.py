"""Frame buffers, slots and results: memory that is lent and given back."""
