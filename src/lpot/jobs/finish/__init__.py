"""After the search: the best model saved, checked and measured, and what is said about it."""
