-- Makes up to $8 matching dead messages after row $7 pending again, lowest first: they start anew, under their old ids.
-- The program puts another state in the place of this one. The lowest id is returned so that the next claim looks far
-- enough back, the highest one so that the next replay goes on behind it. A header counts the replay, so that a broker can
-- tell it from what it repeats; headers that cannot be read stay as they are. The fence says that no lease of a stretch
-- holds them, among whose rows they may stand.
WITH gone AS (
    DELETE FROM pillarbox.outbox_shelf
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM pillarbox.outbox_shelf
        WHERE state = 'dead' AND NOT is_receipt AND id > $7
        AND ($1::bigint[] IS NULL OR id = ANY ($1))
        AND ($2::text IS NULL OR topic = $2)
        AND ($6::text IS NULL OR correlation_id = $6)
        AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
        AND ($4::bigint IS NULL OR settled_at < clock_timestamp() - $4 * interval '1 microsecond')
        AND ($5::bigint IS NULL OR settled_at > clock_timestamp() - $5 * interval '1 microsecond')
        ORDER BY id
        LIMIT $8
        FOR UPDATE SKIP LOCKED))
    RETURNING *
),
replayed AS (
    INSERT INTO pillarbox.outbox (
        id, message_id, fence, topic, payload, created_at, priority, occurred_at, message_type, aggregate_type, aggregate_id,
        tenant_id, message_key, key_hash, correlation_id, causation_id, content_type, headers, last_error)
    SELECT
        id, message_id, -1, topic, payload, created_at, priority, occurred_at, message_type, aggregate_type, aggregate_id,
        tenant_id, message_key, key_hash, correlation_id, causation_id, content_type,
        CASE WHEN headers IS NULL OR jsonb_typeof(headers) = 'object' THEN
            coalesce(headers, '{}') || jsonb_build_object('pillarbox-replay', (1 + CASE
                WHEN headers ->> 'pillarbox-replay' ~ '^[0-9]{1,9}$' THEN (headers ->> 'pillarbox-replay')::integer
                ELSE 0 END)::text)
        ELSE headers END,
        last_error
    FROM gone
    ORDER BY id
    ON CONFLICT (message_id) DO NOTHING
    RETURNING id
),
torn AS (
    UPDATE pillarbox.outbox_lease AS lease SET is_torn = true
    FROM replayed
    WHERE replayed.id BETWEEN lease.first_id AND lease.last_id AND NOT lease.is_torn
)
SELECT count(*) AS replayed, min(id) AS lowest, (SELECT max(id) FROM gone) AS last FROM replayed
