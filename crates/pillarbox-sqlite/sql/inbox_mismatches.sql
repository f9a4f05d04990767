-- A page of messages that came with different contents, after the name ?1, ?2; the partial index holds no others.
SELECT l.source, l.source_id, l.message_id, l.state, l.is_queued,
       coalesce(iif(q.owner_token IS NOT NULL, 'leased', iif(q.id IS NULL, NULL, 'free')),
                iif(s.state = 'pending', 'free', s.state)),
       l.first_seen_at, l.last_seen_at, l.hash_algorithm, l.hash, l.mismatch_count,
       coalesce(q.attempts, s.attempts, 0), iif(q.id IS NULL, s.due_at, q.due_at),
       coalesce(q.last_error, s.last_error, l.last_error), coalesce(q.topic, s.topic)
  FROM pillarbox_inbox_ledger AS l
  LEFT JOIN pillarbox_inbox AS q ON q.message_id = l.message_id
  LEFT JOIN pillarbox_inbox_shelf AS s ON s.message_id = l.message_id
 WHERE l.mismatch_count > 0 AND (l.source, l.source_id) > (?1, ?2)
 ORDER BY l.source, l.source_id
 LIMIT ?3;
