-- Dead rows become live ones and start anew; the last error stays to be read. outbox_leave_shelf.sql does the rest. The
-- program puts another state in the place of 'dead'; of a receipt nothing is left to be delivered.
-- A live row of the same message_id can only come from a foreign writer: then this one stays where it is.
INSERT INTO pillarbox_outbox (
    id, message_id, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
       correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
  FROM pillarbox_outbox_shelf AS s
 WHERE state = 'dead' AND is_receipt = 0 AND id > ?1
   AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))
   AND (?3 IS NULL OR topic = ?3)
   AND (?8 IS NULL OR correlation_id = ?8)
   AND (?4 IS NULL OR instr(last_error, ?4) > 0)
   AND (?5 IS NULL OR coalesce(settled_at, created_at) <= (SELECT now FROM pillarbox_outbox_now) - ?5)
   AND (?6 IS NULL OR coalesce(settled_at, created_at) > (SELECT now FROM pillarbox_outbox_now) - ?6)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox AS l WHERE l.message_id = s.message_id)
 ORDER BY id
 LIMIT ?7
RETURNING id;
