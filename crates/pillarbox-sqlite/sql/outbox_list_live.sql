-- A page of live rows: pending ones (?9 = 0) or leased ones (?9 = 1).
SELECT
    id, message_id, topic, payload, created_at, due_at, expires_at, attempts, lost_lease_count, priority, message_type,
    aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
    occurred_at, last_error,
    CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END, owner_token, locked_until,
    NULL AS settled_at, NULL AS settled_by, 0 AS is_receipt
  FROM pillarbox_outbox_live
 WHERE id > ?1 AND (owner_token IS NOT NULL) = ?9
   AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))
   AND (?3 IS NULL OR topic = ?3)
   AND (?8 IS NULL OR correlation_id = ?8)
   AND (?4 IS NULL OR instr(last_error, ?4) > 0)
   AND (?5 IS NULL OR created_at <= (SELECT now FROM pillarbox_outbox_now) - ?5)
   AND (?6 IS NULL OR created_at > (SELECT now FROM pillarbox_outbox_now) - ?6)
 ORDER BY id
 LIMIT ?7;
