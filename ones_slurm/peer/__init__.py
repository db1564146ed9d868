"""Who is at the other end: munge credentials, peer credentials, and the small HTTP client of jobs and commands."""
