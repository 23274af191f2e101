"""The study: store, runner, statistics, confirmation, claim."""
