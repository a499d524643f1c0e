"""The storm: what Onward promises, shown on thousands of commands at once.

Every event is said twice, all of them in a shuffled order, over many connections from several
processes, and one of these is killed in the middle and started again. Afterwards the database is
asked whether every promise was kept; the senders' own word counts only for what they were told.

`plan` draws the storm from a seed, `sender` is the program that says the events, `journal` is what
a sender has been told, `conductor` runs it all, `invariants` asks the database, and `sabotage`
breaks a promise on purpose, to show that the question can be answered with no.
"""
