"""Whether a program starts threads, told before it runs, and the link step that acts on it."""
