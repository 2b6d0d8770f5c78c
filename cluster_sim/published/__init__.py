"""Speed-ups that others published, compared with this tool's tables."""
