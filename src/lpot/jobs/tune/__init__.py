"""From a request to a Result: what is assembled around the loop of `core/tune.py`."""
