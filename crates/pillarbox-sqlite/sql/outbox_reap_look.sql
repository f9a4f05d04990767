-- One window in the order of the key, read without the write lock: its size, its last id, and whether it needs work.
SELECT count(*), max(id),
       coalesce(max(
           (owner_token IS NULL AND (expires_at <= now OR due_at > now))
           OR (owner_token IS NOT NULL AND coalesce(locked_until, 0) <= now)
           OR (?4 AND owner_token IS NULL AND message_key IS NOT NULL AND EXISTS (
                   SELECT 1 FROM pillarbox_outbox_shelf AS dead
                    WHERE dead.message_key = live.message_key AND dead.id < live.id
                      AND dead.state <> 'done' AND dead.state = 'dead'))
       ), 0) OR EXISTS (SELECT 1 FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_lease WHERE locked_until <= now),
       EXISTS (
           SELECT 1 FROM pillarbox_outbox_shelf, pillarbox_outbox_now
            WHERE ?3 AND state = 'pending' AND wake_at <= now AND expires_at <= now
       ),
       EXISTS (
           SELECT 1 FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_shelf AS waiting
            WHERE ?3 AND ?4 AND state = 'pending' AND wake_at <= now AND due_at <= now AND message_key IS NOT NULL AND EXISTS (
                      SELECT 1 FROM pillarbox_outbox_shelf AS dead
                       WHERE dead.message_key = waiting.message_key AND dead.id < waiting.id
                         AND dead.state <> 'done' AND dead.state = 'dead')
       )
  FROM (SELECT id, owner_token, locked_until, due_at, expires_at, message_key
          FROM pillarbox_outbox WHERE id > ?1 ORDER BY id LIMIT ?2) AS live
 CROSS JOIN pillarbox_outbox_now;
