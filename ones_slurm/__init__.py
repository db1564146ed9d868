"""An elastic co-scheduler that sits next to Slurm: see `docs/architecture.md` for the whole in ten minutes."""

__version__ = "0.1.0"
