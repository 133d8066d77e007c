"""Lines that wait for long, and lines that were lost, are trouble; a moment's silence is none."""

from __future__ import annotations

from sexton.core.finding import Severity
from sexton.core.logstanding import PATIENCE, Standing, Waiting, judge_logs

NOW = 1_000_000.0


def standing(**fields):
    return Standing(at=NOW, held=1 << 20, bound=1 << 28, **fields)


def test_a_destination_that_takes_nothing_is_told_after_a_while_with_its_reason():
    def judged(waited):
        waiting = (Waiting("https://logs", NOW - waited, "AccessDeniedException: no"),)
        return judge_logs(standing(waiting=waiting), NOW, 0, "f")

    assert judged(PATIENCE - 1) == ()
    (finding,) = judged(PATIENCE + 1)
    assert (finding.fingerprint, finding.severity) == ("logs/undelivered/https://logs", Severity.WARNING)
    assert "AccessDeniedException: no" in [one.value for one in finding.evidence]


def test_lines_that_were_lost_since_the_last_look_are_critical_and_older_ones_are_history():
    assert judge_logs(standing(dropped=5), NOW, None, "f") == ()
    assert judge_logs(standing(dropped=5), NOW, 5, "f") == ()
    (finding,) = judge_logs(standing(dropped=7), NOW, 5, "f")
    assert (finding.fingerprint, finding.severity) == ("logs/dropped", Severity.CRITICAL)
    assert finding.title.startswith("2 log lines")
