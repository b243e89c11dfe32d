"""Report: what a comparison found, for people (terminal, page), for programs (JSON), as SQL that mends."""
