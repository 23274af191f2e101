"""The tuning pipeline of a study and its stages, from the first run to the confirmed picks."""
