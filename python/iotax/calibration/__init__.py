"""From measurements to a table of costs for the simulator, and back: what such a table says of other measurements."""

from iotax.calibration.prediction import NothingToPredict, Predicted, Prediction, predict
from iotax.calibration.table import Check, Made, NothingToFit, make_table

__all__ = [
    "Check",
    "Made",
    "NothingToFit",
    "NothingToPredict",
    "Predicted",
    "Prediction",
    "make_table",
    "predict",
]
