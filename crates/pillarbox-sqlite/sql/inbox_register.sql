-- Takes the row for a consumer: done at once (?4 = 'done'), or under a lease (?4 = 'processing', owner ?8, for ?9). A row
-- that is done, queued or under somebody else's lease is left as it is but for the time it was last seen and its hash; the
-- consumer's own lease is ?10 and ?11. The fence ?7 is drawn for this call, so the answer tells whether it took the row.
INSERT INTO pillarbox_inbox_ledger (
    source, source_id, message_id, state, first_seen_at, last_seen_at, done_at, hash_algorithm, hash, fence,
    owner_token, locked_until
)
SELECT ?1, ?2, ?3, ?4, now, now, iif(?4 = 'done', now, NULL), ?5, ?6, ?7, ?8, now + ?9
  FROM pillarbox_inbox_now WHERE true
ON CONFLICT (source, source_id) DO UPDATE
   SET last_seen_at = max(last_seen_at, excluded.last_seen_at),
       mismatch_count = min(
           mismatch_count + coalesce(hash_algorithm = excluded.hash_algorithm AND hash <> excluded.hash, 0), 2147483647
       ),
       hash = iif(hash_algorithm IS NULL, excluded.hash, hash),
       hash_algorithm = coalesce(hash_algorithm, excluded.hash_algorithm),
       (state, done_at, fence, owner_token, locked_until) = (
           SELECT iif(free, excluded.state, state), iif(free, excluded.done_at, done_at),
                  iif(free, excluded.fence, fence), iif(free, excluded.owner_token, owner_token),
                  iif(free, excluded.locked_until, locked_until)
             FROM (SELECT state <> 'done' AND NOT is_queued
                          AND (locked_until IS NULL OR locked_until <= excluded.last_seen_at
                               OR (owner_token = ?10 AND fence = ?11)) AS free)
       )
RETURNING message_id, fence = ?7, state, is_queued,
       CASE WHEN is_queued AND state <> 'done' AND message_id <> ?3 THEN coalesce(
           (SELECT iif(q.owner_token IS NOT NULL AND q.locked_until > n.now, 'leased', 'free')
              FROM pillarbox_inbox AS q CROSS JOIN pillarbox_inbox_now AS n
             WHERE q.message_id = pillarbox_inbox_ledger.message_id),
           (SELECT iif(s.state = 'pending', 'free', s.state)
              FROM pillarbox_inbox_shelf AS s
             WHERE s.message_id = pillarbox_inbox_ledger.message_id)
       ) END,
       coalesce(hash_algorithm = ?5 AND hash <> ?6, 0);
