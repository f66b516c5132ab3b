"""What a backend must keep to, as a suite that third parties can run, too."""

from lpot.testing.conformance import BackendConformance, Case

__all__ = ["BackendConformance", "Case"]
