-- A delivery: writes the row when it is new, else moves on the time it was last seen and compares the hash. The hash on
-- record is kept; one of another algorithm is not comparable. Answers what is known now, and where the queue has the message.
INSERT INTO pillarbox_inbox_ledger (
    source, source_id, message_id, state, is_queued, first_seen_at, last_seen_at, hash_algorithm, hash
)
SELECT ?1, ?2, ?3, ?4, ?5, now, now, ?6, ?7 FROM pillarbox_inbox_now WHERE true
ON CONFLICT (source, source_id) DO UPDATE
   SET last_seen_at = max(last_seen_at, excluded.last_seen_at),
       mismatch_count = min(
           mismatch_count + coalesce(hash_algorithm = excluded.hash_algorithm AND hash <> excluded.hash, 0), 2147483647
       ),
       hash = iif(hash_algorithm IS NULL, excluded.hash, hash),
       hash_algorithm = coalesce(hash_algorithm, excluded.hash_algorithm)
RETURNING message_id, message_id = ?3, state, is_queued,
       CASE WHEN is_queued AND state <> 'done' AND message_id <> ?3 THEN coalesce(
           (SELECT iif(q.owner_token IS NOT NULL AND q.locked_until > n.now, 'leased', 'free')
              FROM pillarbox_inbox AS q CROSS JOIN pillarbox_inbox_now AS n
             WHERE q.message_id = pillarbox_inbox_ledger.message_id),
           (SELECT iif(s.state = 'pending', 'free', s.state)
              FROM pillarbox_inbox_shelf AS s
             WHERE s.message_id = pillarbox_inbox_ledger.message_id)
       ) END,
       coalesce(hash_algorithm = ?6 AND hash <> ?7, 0);
