"""Output for people: the HTML report, terminal tables, and settings to paste."""
