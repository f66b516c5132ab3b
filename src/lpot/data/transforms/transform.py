"""Door: the original's module of transforms."""

from lpot.data.transforms import TRANSFORMS, BaseTransform, Compose, transform_registry

__all__ = ["TRANSFORMS", "BaseTransform", "Compose", "transform_registry"]
