"""The stages of the way of a frame: each a loop on the event loop and a thread of its own."""
