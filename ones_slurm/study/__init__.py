"""What would have been: runs of policies over imagined clusters, and the figures and pictures that compare them."""
