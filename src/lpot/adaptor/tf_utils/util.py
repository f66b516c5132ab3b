"""Door: functions on TensorFlow graphs that scripts of the original import from here."""

from lpot.backends.tensorflow.freeze import is_ckpt_format, is_saved_model_format
from lpot.backends.tensorflow.load import get_graph_def, get_slim_graph
from lpot.backends.tensorflow.run import iterator_sess_run
from lpot.backends.tensorflow.save import write_graph

__all__ = [
    "get_graph_def",
    "get_slim_graph",
    "is_ckpt_format",
    "is_saved_model_format",
    "iterator_sess_run",
    "write_graph",
]
