"""Who gets what: `decide(view, rng) -> Plan`, pure functions, one short file a policy."""
