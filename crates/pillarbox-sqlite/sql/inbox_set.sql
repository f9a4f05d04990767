-- Writes what was decided about a row; whoever held a lease on it finds it gone.
UPDATE pillarbox_inbox_ledger
   SET state = ?3, is_queued = ?4, last_error = ?5, owner_token = NULL, locked_until = NULL,
       done_at = iif(?3 = 'done', (SELECT now FROM pillarbox_inbox_now), NULL)
 WHERE source = ?1 AND source_id = ?2;
