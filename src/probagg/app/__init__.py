"""The application: what makes, opens and shows runs."""
