-- A page of dead messages after row $7, at most $8. The state is a literal, so that its partial index serves; the program
-- puts another state in its place for the other lists.
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error,
    state, NULL::uuid AS owner_token, NULL::timestamptz AS locked_until, settled_at, settled_by, is_receipt
FROM pillarbox.outbox_shelf
WHERE state = 'dead' AND id > $7
  AND ($1::bigint[] IS NULL OR id = ANY ($1))
  AND ($2::text IS NULL OR topic = $2)
  AND ($6::text IS NULL OR correlation_id = $6)
  AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
  AND ($4::bigint IS NULL OR coalesce(settled_at, created_at) < clock_timestamp() - $4 * interval '1 microsecond')
  AND ($5::bigint IS NULL OR coalesce(settled_at, created_at) > clock_timestamp() - $5 * interval '1 microsecond')
ORDER BY id
LIMIT $8
