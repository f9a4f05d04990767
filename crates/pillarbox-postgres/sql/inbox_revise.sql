-- Other contents for the next attempts of messages that are under a running lease. The lease stays, and so do key and priority,
-- by which the running attempt has its place in the order. Answers which: one that a worker has settled meanwhile is missing.
-- The rows are locked in the order in which verdicts lock them. The parameters are those of outbox_enqueue_delayed.sql.
WITH held AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now
    FROM pillarbox.inbox
    WHERE message_id = ANY ($1::uuid[]) AND owner_token IS NOT NULL AND locked_until > clock_timestamp()
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pillarbox.inbox AS live
SET topic = input.topic, payload = input.payload, message_type = input.message_type,
    aggregate_type = input.aggregate_type, aggregate_id = input.aggregate_id, tenant_id = input.tenant_id,
    correlation_id = input.correlation_id, causation_id = input.causation_id, content_type = input.content_type,
    headers = input.headers::jsonb, occurred_at = input.occurred_at,
    due_at = coalesce(input.due_at, held.now + input.due_after * interval '1 microsecond'),
    expires_at = coalesce(input.expires_at, held.now + input.expires_after * interval '1 microsecond')
FROM held, unnest(
        $1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::smallint[],
        $17::bigint[], $21::bigint[], $22::timestamptz[]
    ) AS input (
        message_id, topic, payload, expires_after, expires_at, message_type, aggregate_type, aggregate_id, tenant_id,
        message_key, correlation_id, causation_id, content_type, headers, occurred_at, priority, key_hash, due_after,
        due_at)
WHERE live.id = held.id AND live.message_id = input.message_id
    AND live.owner_token IS NOT NULL AND live.locked_until > held.now
RETURNING live.message_id
