"""The stages that a frame passes, and what moves it between them."""
