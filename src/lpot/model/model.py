"""Door: `lpot.model.model`, where scripts ask in which form a TensorFlow model comes."""

from lpot.backends.tensorflow.reading.legacy import get_model_type
from lpot.core.model import Model as BaseModel

__all__ = ["BaseModel", "get_model_type"]
