-- Second step for messages that asked to wait: they got their id from the sequence of the live table and leave it again,
-- unseen, within the transaction that brought them. Only the database's clock says which of them must wait.
INSERT INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT l.id, message_id, 'pending', min(due_at, coalesce(expires_at, due_at)), NULL, NULL, 0, due_at, expires_at, attempts,
       lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
       correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
  FROM json_each(?1) AS e CROSS JOIN pillarbox_outbox AS l CROSS JOIN pillarbox_outbox_now
 WHERE l.id = e.value AND due_at > now
RETURNING id;
