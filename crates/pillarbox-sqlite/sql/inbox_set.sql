-- Writes what was decided about a row that the queue does not have; whoever held a lease on it finds it gone.
UPDATE pillarbox_inbox_ledger
   SET state = ?3, is_queued = 0, last_error = ?4, owner_token = NULL, locked_until = NULL,
       done_at = iif(?3 = 'done', (SELECT now FROM pillarbox_inbox_now), NULL)
 WHERE source = ?1 AND source_id = ?2;
