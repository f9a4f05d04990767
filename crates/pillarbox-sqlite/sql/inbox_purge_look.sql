-- A look before a purge, without the write lock.
SELECT EXISTS (
    SELECT 1
      FROM pillarbox_inbox_now CROSS JOIN pillarbox_inbox_ledger AS l
     WHERE (l.state = 'done' OR l.is_queued) AND l.last_seen_at <= now - ?1
       AND NOT EXISTS (SELECT 1 FROM pillarbox_inbox AS q WHERE q.message_id = l.message_id)
       AND NOT EXISTS (SELECT 1 FROM pillarbox_inbox_shelf AS s WHERE s.message_id = l.message_id)
);
