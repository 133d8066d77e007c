"""Ways in which the world outside hears of findings: one file each, unaware of its siblings."""
