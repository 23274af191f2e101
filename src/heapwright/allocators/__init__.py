"""The registry: how each allocator is found, set and probed; parameter spaces as TOML."""
