"""A load generator that the study describes."""
