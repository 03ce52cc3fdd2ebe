"""Four hospitals, one posterior, on Flower."""
