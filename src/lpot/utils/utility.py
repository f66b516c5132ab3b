"""Door: `lpot.utils.utility`."""

from lpot.jobs.recover import get_tuning_history, recover

__all__ = ["get_tuning_history", "recover"]
