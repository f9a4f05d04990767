-- Leases that run and that ran out, and since when the oldest message waits that could be claimed now.
SELECT (SELECT count(*) FROM pillarbox_outbox WHERE owner_token IS NOT NULL AND coalesce(locked_until, 0) > now)
           + (SELECT coalesce(sum(last_id - first_id + 1), 0) FROM pillarbox_outbox_lease WHERE locked_until > now),
       (SELECT count(*) FROM pillarbox_outbox WHERE owner_token IS NOT NULL AND coalesce(locked_until, 0) <= now)
           + (SELECT coalesce(sum(last_id - first_id + 1), 0) FROM pillarbox_outbox_lease WHERE locked_until <= now),
       now - (SELECT min(since)
                FROM (SELECT min(coalesce(due_at, created_at)) AS since
                        FROM pillarbox_outbox_live
                       WHERE owner_token IS NULL AND (due_at IS NULL OR due_at <= now)
                         AND (expires_at IS NULL OR expires_at > now)
                       UNION ALL
                      SELECT min(due_at)
                        FROM pillarbox_outbox_shelf
                       WHERE state = 'pending' AND wake_at <= now AND due_at <= now
                         AND (expires_at IS NULL OR expires_at > now)))
  FROM pillarbox_outbox_now;
