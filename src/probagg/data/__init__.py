"""What a user brings: named data sets now, image folders and matrices later."""
