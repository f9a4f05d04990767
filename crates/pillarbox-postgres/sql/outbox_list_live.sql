-- A page of messages that wait to be claimed ($9 false) or are leased ($9 true), after row $7, at most $8.
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error,
    CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END AS state,
    owner_token, locked_until, NULL::timestamptz AS settled_at, NULL::uuid AS settled_by, false AS is_receipt
FROM pillarbox.outbox_live
WHERE id > $7 AND (owner_token IS NOT NULL) = $9
  AND ($1::bigint[] IS NULL OR id = ANY ($1))
  AND ($2::text IS NULL OR topic = $2)
  AND ($6::text IS NULL OR correlation_id = $6)
  AND ($3::text IS NULL OR strpos(last_error, $3) > 0)
  AND ($4::bigint IS NULL OR created_at < clock_timestamp() - $4 * interval '1 microsecond')
  AND ($5::bigint IS NULL OR created_at > clock_timestamp() - $5 * interval '1 microsecond')
ORDER BY id
LIMIT $8
