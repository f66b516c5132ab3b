"""From whatever form a model comes in to one frozen graph: files, Keras, functions, folders."""
