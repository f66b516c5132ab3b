"""A tuning followed from elsewhere: TensorBoard, MLflow, listeners on a thread of their own."""
