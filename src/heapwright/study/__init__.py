"""The study file: its schema and store, what it holds as plain data, and what follows from that."""
