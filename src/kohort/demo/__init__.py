"""`kohort demo`: the main job end to end, on real records. `story.py` tells it; the rest is what it needs."""
