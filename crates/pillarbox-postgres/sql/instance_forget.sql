-- Those not heard of for $1 microseconds, at most $2; each instance skips what another one is at.
DELETE FROM pillarbox.outbox_instance
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pillarbox.outbox_instance
    WHERE last_seen_at <= statement_timestamp() - $1 * interval '1 microsecond'
    OR last_seen_at >= statement_timestamp() + $1 * interval '1 microsecond'
    ORDER BY last_seen_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING 1
