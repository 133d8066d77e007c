"""The caretaker: keeps the host fit to run containers. Open ``look.py`` first, then follow a finding through
``probes/``, ``core/finding.py`` and ``report.py``."""
