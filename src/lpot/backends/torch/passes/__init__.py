"""Rewrites: what is found in, and done to, a module tree before a trial is put together."""
