"""From measurements to a table of costs for the simulator, and back: what such a table says of other measurements."""

from iotax.calibration.prediction import Predicted, Prediction, Row, predict
from iotax.calibration.table import Check, Made, make_table
from iotax.calibration.treatments import NothingMeasured

__all__ = [
    "Check",
    "Made",
    "NothingMeasured",
    "Predicted",
    "Prediction",
    "Row",
    "make_table",
    "predict",
]
