"""Runs for others: the model as one ONNX or safetensors file, the clusters for other tools."""
