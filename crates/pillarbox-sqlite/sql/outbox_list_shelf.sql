-- A page of dead rows; the program puts another state in the place of 'dead'. A literal, because only a literal lets
-- SQLite use the partial indexes. Waiting rows age from their creation, the others from when they were settled.
SELECT
    id, message_id, topic, payload, created_at, due_at, expires_at, attempts, lost_lease_count, priority, message_type,
    aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
    occurred_at, last_error,
    state, NULL, NULL, settled_at, settled_by, is_receipt
  FROM pillarbox_outbox_shelf
 WHERE state = 'dead' AND id > ?1
   AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))
   AND (?3 IS NULL OR topic = ?3)
   AND (?8 IS NULL OR correlation_id = ?8)
   AND (?4 IS NULL OR instr(last_error, ?4) > 0)
   AND (?5 IS NULL OR coalesce(settled_at, created_at) <= (SELECT now FROM pillarbox_outbox_now) - ?5)
   AND (?6 IS NULL OR coalesce(settled_at, created_at) > (SELECT now FROM pillarbox_outbox_now) - ?6)
 ORDER BY id
 LIMIT ?7;
