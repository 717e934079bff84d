"""Where trials run. All labs give the same TrialResult."""
