-- Dead rows become live ones and start anew; the last error stays to be read. outbox_leave_shelf.sql does the rest. The
-- program puts another state in the place of 'dead'; of a receipt nothing is left to be delivered.
-- A header counts the replay, so that a broker can tell it from what it repeats; headers that cannot be read stay as they are.
-- The fence -1 says that a row came back to its place, perhaps before one of its key that is held.
-- A live row of the same message_id can only come from a foreign writer: then this one stays where it is.
INSERT INTO pillarbox_outbox (
    id, message_id, fence, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, -1, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
       correlation_id, causation_id, content_type,
       CASE WHEN headers IS NULL THEN json_object('pillarbox-replay', '1')
            WHEN NOT json_valid(headers) OR json_type(headers) <> 'object' THEN headers
            ELSE json_set(headers, '$."pillarbox-replay"', CAST(1 + CASE
                WHEN headers ->> '$."pillarbox-replay"' GLOB '*[^0-9]*' THEN 0
                WHEN length(headers ->> '$."pillarbox-replay"') BETWEEN 1 AND 9 THEN headers ->> '$."pillarbox-replay"'
                ELSE 0 END AS TEXT))
       END,
       occurred_at, last_error, payload
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
