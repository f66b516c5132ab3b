"""Door: functions on TensorFlow graphs that scripts of the original import from here."""

from lpot.backends.tensorflow.reading.freeze import is_ckpt_format, is_saved_model_format
from lpot.backends.tensorflow.reading.legacy import get_estimator_graph
from lpot.backends.tensorflow.reading.legacy import use_moving_statistics as _parse_ckpt_bn_input
from lpot.backends.tensorflow.reading.load import get_graph_def, get_slim_graph
from lpot.backends.tensorflow.run import iterator_sess_run
from lpot.backends.tensorflow.save import write_graph

__all__ = [
    "_parse_ckpt_bn_input",
    "get_estimator_graph",
    "get_graph_def",
    "get_slim_graph",
    "is_ckpt_format",
    "is_saved_model_format",
    "iterator_sess_run",
    "write_graph",
]
