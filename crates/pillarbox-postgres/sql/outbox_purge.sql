-- Removes done messages that were settled more than $1 microseconds ago, at most $2, oldest first. Any number of
-- instances may do this at once: each skips what another one is removing.
DELETE FROM pillarbox.outbox_shelf
WHERE ctid = ANY (ARRAY(
    SELECT shelf.ctid FROM pillarbox.outbox_shelf AS shelf
    WHERE shelf.state = 'done' AND shelf.settled_at <= clock_timestamp() - $1 * interval '1 microsecond'
    ORDER BY shelf.settled_at, shelf.id
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING 1
