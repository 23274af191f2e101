"""Traces of allocation: recorded, packed, replayed. The native programs do the work on events; this drives them."""
