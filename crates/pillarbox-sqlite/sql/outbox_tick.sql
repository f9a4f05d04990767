-- Remembers the time that was acted upon, so that a clock that is set back cannot undo it.
-- Writes only when the transaction has written something else: an idle call must leave the file alone.
UPDATE pillarbox_outbox_clock SET at = ?1 WHERE one = 1 AND at < ?1 AND total_changes() > ?2;
