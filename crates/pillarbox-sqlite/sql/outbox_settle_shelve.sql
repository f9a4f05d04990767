-- Failed rows, and those that wait before the next attempt, go to the shelf; outbox_settle_remove.sql does the rest.
-- ?3 maps ids to [fence, state, delay, attempts given back, reason].
-- OR REPLACE: a shelved row of the same message_id can only exist beside a foreign writer's; the latest outcome counts.
INSERT OR REPLACE INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, state,
       CASE state WHEN 'pending' THEN min(?1 + delay, coalesce(expires_at, ?1 + delay)) END,
       CASE state WHEN 'dead' THEN ?1 END,
       owner_token,
       0,
       CASE state WHEN 'pending' THEN ?1 + delay ELSE due_at END,
       expires_at, max(attempts - given_back, 0),
       lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
       correlation_id, causation_id, content_type, headers, occurred_at, coalesce(reason, last_error), payload
  FROM (SELECT l.*,
               json_extract(s.value, '$[1]') AS state,
               json_extract(s.value, '$[2]') AS delay,
               json_extract(s.value, '$[3]') AS given_back,
               json_extract(s.value, '$[4]') AS reason
          FROM json_each(?3) AS s CROSS JOIN pillarbox_outbox AS l
         WHERE l.id = CAST(s.key AS INTEGER) AND l.fence = json_extract(s.value, '$[0]') AND l.owner_token = ?2);
