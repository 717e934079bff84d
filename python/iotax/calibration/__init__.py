"""Makes cost tables for the simulator from measurements, and compares their predictions with other measurements."""

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
