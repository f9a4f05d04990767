-- One statement for many messages: the program repeats the row of `message` as often as needed.
-- Anonymous parameters throughout: the driver numbers them by their place, so no row's text names a number.
-- A known message_id, live or shelved, is passed over without an error, which keeps the caller's transaction whole.
-- The moment is materialized: the clock is read once, not wherever a column speaks of it.
WITH moment (now, owner_token, fence, locked_until) AS MATERIALIZED (
    SELECT now, ?, ?, now + ? FROM pillarbox_outbox_now
),
message (
    message_id, topic, payload, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
    causation_id, content_type, headers, occurred_at, priority, key_hash, due_at, due_after, expires_at,
    expires_after
) AS (
    VALUES
    (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
),
placed AS (
    SELECT message.*, moment.*,
           coalesce(message.due_at, now + due_after) AS due,
           coalesce(message.expires_at, now + expires_after) AS expires
      FROM moment CROSS JOIN message
)
INSERT INTO pillarbox_outbox (
    message_id, owner_token, locked_until, fence, attempts, due_at, expires_at, priority, created_at, topic,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id, causation_id,
    content_type, headers, occurred_at, payload
)
SELECT message_id,
       CASE WHEN is_free THEN owner_token END,
       CASE WHEN is_free THEN locked_until END,
       CASE WHEN is_free THEN coalesce(fence, 0) ELSE 0 END,
       is_free AND owner_token IS NOT NULL,
       due, expires, priority, now, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
       key_hash, correlation_id, causation_id, content_type, headers, occurred_at, payload
  FROM (SELECT *, coalesce(due <= now, 1) AND coalesce(expires > now, 1) AS is_free FROM placed) AS p
 WHERE NOT EXISTS (SELECT 1 FROM pillarbox_outbox_shelf AS s WHERE s.message_id = p.message_id)
ON CONFLICT (message_id) DO NOTHING
RETURNING id, message_id, owner_token IS NOT NULL;
