"""What is measured: pairs of a target and an initiator."""
