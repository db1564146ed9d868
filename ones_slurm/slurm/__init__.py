"""The only room that knows Slurm: clients, readers of its many formats, and the live `Cluster`."""
