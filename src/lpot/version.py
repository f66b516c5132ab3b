"""The one place that says which lpot this is."""

VERSION = "2.0.0"
