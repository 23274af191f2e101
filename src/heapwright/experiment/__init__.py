"""The interleaving engine: blocks of runs side by side in time, who runs them, and their statistics."""
