"""The former place of `attendant loadtest-report`."""

from loadtest.cli import loadtest_report as loadtest_report
