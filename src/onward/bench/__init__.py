"""What is measured, and against whom.

Every figure is a ratio within one run: what Onward does beside what another program does with the
same work on the same server, round after round in turn, and of each the best. PostgreSQL is durable
on both sides. A target that is missed is shown like one that is met.
"""
