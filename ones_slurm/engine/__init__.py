"""The loop over one `Cluster` and one `Policy`: reconcile, guard, journal, replay."""
