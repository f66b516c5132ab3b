"""Door: `lpot.utils`, where the original keeps small functions."""
