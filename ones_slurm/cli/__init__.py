"""The commands people type: one file a subcommand, heavy imports inside the function."""
