"""Runs for others: the model as one ONNX file, the clusters for Label Studio."""
