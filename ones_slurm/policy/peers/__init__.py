"""What others have proposed, as policies to compare with: each hands out single GPUs by name of their node."""
