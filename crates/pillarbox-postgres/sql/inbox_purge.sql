-- Done rows that were last seen more than $1 microseconds ago, at most $2, oldest first; each instance skips what another one
-- is at. A queued message is done here once the queue has forgotten it: its receipt is kept for as long after it was settled.
DELETE FROM pillarbox.inbox_ledger
WHERE ctid = ANY (ARRAY(
    SELECT ledger.ctid FROM pillarbox.inbox_ledger AS ledger
    WHERE (ledger.state = 'done' OR ledger.is_queued)
    AND ledger.last_seen_at <= statement_timestamp() - $1 * interval '1 microsecond'
    AND NOT EXISTS (SELECT FROM pillarbox.inbox AS live WHERE live.message_id = ledger.message_id)
    AND NOT EXISTS (SELECT FROM pillarbox.inbox_shelf AS shelf WHERE shelf.message_id = ledger.message_id)
    ORDER BY ledger.last_seen_at
    LIMIT $2
    FOR UPDATE OF ledger SKIP LOCKED))
RETURNING 1
