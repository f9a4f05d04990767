-- Verdicts that carry text are bound, not written into the statement: statements reach logs.
CALL `pillarbox_outbox_settle`(?, ?)
