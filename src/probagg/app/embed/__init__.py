"""Features of images from a frozen pretrained backbone, cached by content."""
