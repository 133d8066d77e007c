"""The incident, replayed on a throw-away systemd: open ``story.py`` first; what is played is in ``stage.py``."""
