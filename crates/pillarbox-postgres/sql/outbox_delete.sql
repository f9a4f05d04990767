-- Deletes up to $7 matching dead messages, lowest first.
DELETE FROM pillarbox.outbox_shelf
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pillarbox.outbox_shelf
    WHERE state = 'dead'
    AND ($1::bigint[] IS NULL OR id = ANY ($1))
    AND ($2::text IS NULL OR topic = $2)
    AND ($6::text IS NULL OR correlation_id = $6)
    AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
    AND ($4::bigint IS NULL OR settled_at < clock_timestamp() - $4 * interval '1 microsecond')
    AND ($5::bigint IS NULL OR settled_at > clock_timestamp() - $5 * interval '1 microsecond')
    ORDER BY id
    LIMIT $7
    FOR UPDATE SKIP LOCKED))
RETURNING 1
