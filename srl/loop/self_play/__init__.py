"""Self-play in the loop: pairings of slots with past versions, the league, match results."""
