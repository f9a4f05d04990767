-- Rows above ?1 that may be leased without being written: a lease of their stretch comes beside them, see outbox_lease_add.sql. One that
-- may not has no topic here, and ends what is taken. ?3 is the time. The columns are those of outbox_claim.sql.
SELECT
    id, message_id,
    CASE WHEN owner_token IS NULL AND message_key IS NULL AND (due_at IS NULL OR due_at <= ?3)
              AND (expires_at IS NULL OR expires_at > ?3)
         THEN topic END,
    payload, created_at, min(attempts + 1, 2147483647), content_type,
    CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                       causation_id, headers, occurred_at, last_error) IS NOT NULL OR lost_lease_count <> 0 OR priority <> 0
         THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id, tenant_id,
                         message_key, correlation_id, causation_id, headers, occurred_at, last_error) END
  FROM pillarbox_outbox
 WHERE id > ?1
   AND id < coalesce((SELECT min(first_id) FROM pillarbox_outbox_lease WHERE first_id > ?1), 9223372036854775807)
 ORDER BY id
 LIMIT ?2;
