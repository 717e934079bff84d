"""The lab of real hosts, over SSH: nothing is installed on them but the engine."""
