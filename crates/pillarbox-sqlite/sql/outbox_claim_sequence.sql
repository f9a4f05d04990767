-- As outbox_claim.sql, where all messages have one key: rows from the start of the table, without a gap, while none is held
-- and nothing before them waits on the shelf. The look for one that is held goes past what was given back or replayed.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM pillarbox_outbox
     WHERE (owner_token IS NULL OR (coalesce(locked_until, 0) <= ?1 AND lost_lease_count < ?6))
       AND (due_at IS NULL OR due_at <= ?1)
       AND (expires_at IS NULL OR expires_at > ?1)
       AND id < coalesce((SELECT id FROM pillarbox_outbox_shelf WHERE state = 'pending' AND settled_by IS NOT NULL
                           ORDER BY id LIMIT 1), 9223372036854775807)
       AND id < coalesce((SELECT id FROM pillarbox_outbox_shelf WHERE state = 'dead' AND ?7
                           ORDER BY id LIMIT 1), 9223372036854775807)
     ORDER BY id
     LIMIT ?5
),
others AS MATERIALIZED (
    SELECT id FROM pillarbox_outbox WHERE id NOT IN (SELECT id FROM picked) ORDER BY id LIMIT 1
),
next AS MATERIALIZED (
    SELECT locked_until
      FROM pillarbox_outbox
     WHERE (locked_until > ?1 OR (owner_token IS NULL AND fence >= 0)) AND id NOT IN (SELECT id FROM picked)
     ORDER BY id
     LIMIT 4
)
UPDATE pillarbox_outbox
   SET owner_token = ?2,
       fence = ?3,
       locked_until = ?1 + ?4,
       attempts = min(attempts + 1, 2147483647),
       lost_lease_count = min(lost_lease_count + (owner_token IS NOT NULL), 2147483647)
 WHERE id IN (
           SELECT id
             FROM picked
            WHERE id < coalesce((SELECT min(id) FROM others), 9223372036854775807)
              AND NOT EXISTS (SELECT 1 FROM next WHERE locked_until > ?1)
       )
RETURNING
    id, message_id, topic, payload, created_at, attempts, content_type,
    CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                       causation_id, headers, occurred_at, last_error) IS NOT NULL OR lost_lease_count <> 0 OR priority <> 0
         THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id, tenant_id,
                         message_key, correlation_id, causation_id, headers, occurred_at, last_error) END;
