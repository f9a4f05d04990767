-- Makes a message done that nobody has seen yet. One that is known is left to inbox_register.sql, which costs more.
INSERT INTO pillarbox_inbox_ledger (
    source, source_id, message_id, state, first_seen_at, last_seen_at, done_at, hash_algorithm, hash
)
SELECT ?1, ?2, ?3, 'done', now, now, now, ?4, ?5
  FROM pillarbox_inbox_now WHERE true
ON CONFLICT (source, source_id) DO NOTHING;
