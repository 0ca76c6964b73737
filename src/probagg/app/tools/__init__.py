"""Runs for other tools: Label Studio, FiftyOne, Hugging Face datasets, AnnData."""
