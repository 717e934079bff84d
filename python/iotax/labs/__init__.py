"""Labs, in which trials run. All labs give the same TrialResult."""
