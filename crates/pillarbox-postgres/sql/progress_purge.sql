-- Results of receptors that were stored more than $1 microseconds ago and whose message the queue has no more, at most $2, oldest
-- first; each instance skips what another one is at.
DELETE FROM pillarbox.outbox_receptor
WHERE ctid = ANY (ARRAY(
    SELECT result.ctid FROM pillarbox.outbox_receptor AS result
    WHERE result.changed_at <= clock_timestamp() - $1 * interval '1 microsecond'
    AND NOT EXISTS (SELECT FROM pillarbox.outbox AS live WHERE live.message_id = result.message_id)
    AND NOT EXISTS (SELECT FROM pillarbox.outbox_shelf AS shelf WHERE shelf.message_id = result.message_id)
    ORDER BY result.changed_at
    LIMIT $2
    FOR UPDATE OF result SKIP LOCKED))
RETURNING 1
