"""What happened, read from accounting and the journal."""
