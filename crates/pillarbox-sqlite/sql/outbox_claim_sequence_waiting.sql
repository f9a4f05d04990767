-- As outbox_claim_waiting.sql, where all messages have one key.
INSERT INTO pillarbox_outbox (
    id, message_id, owner_token, locked_until, fence, due_at, expires_at, attempts, lost_lease_count, priority,
    created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id, causation_id,
    content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, ?2, ?1 + ?4, ?3, due_at, expires_at, min(attempts + 1, 2147483647), lost_lease_count, priority,
       created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id,
       causation_id, content_type, headers, occurred_at, last_error, payload
  FROM pillarbox_outbox_shelf AS s
 WHERE state = 'pending' AND wake_at <= ?1 AND due_at <= ?1 AND (expires_at IS NULL OR expires_at > ?1)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox AS l WHERE l.message_id = s.message_id)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox WHERE id < s.id)
   AND NOT EXISTS (SELECT 1
                     FROM (SELECT locked_until
                             FROM pillarbox_outbox
                            WHERE locked_until > ?1 OR (owner_token IS NULL AND fence >= 0)
                            ORDER BY id
                            LIMIT 4)
                    WHERE locked_until > ?1)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox_shelf AS earlier
                    WHERE earlier.state = 'pending' AND earlier.settled_by IS NOT NULL AND earlier.id < s.id)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox_shelf AS earlier
                    WHERE earlier.state = 'dead' AND earlier.id < s.id AND ?7)
 ORDER BY wake_at, id
 LIMIT ?5
RETURNING
    id, message_id, topic, payload, created_at, attempts, content_type,
    CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                       causation_id, headers, occurred_at, last_error) IS NOT NULL OR lost_lease_count <> 0 OR priority <> 0
         THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id, tenant_id,
                         message_key, correlation_id, causation_id, headers, occurred_at, last_error) END;
