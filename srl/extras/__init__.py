"""Commands that no other room needs: each registers its own."""
