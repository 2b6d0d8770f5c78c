"""Speculative decoding: acceptance profiles, draft schedules, and what a drafter costs."""
