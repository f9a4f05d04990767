-- Done rows that were last seen so long ago, oldest first. A queued message is done here once the queue has forgotten it:
-- its receipt on the shelf is kept for as long after it was settled.
DELETE FROM pillarbox_inbox_ledger
 WHERE (source, source_id) IN (
           SELECT l.source, l.source_id
             FROM pillarbox_inbox_now CROSS JOIN pillarbox_inbox_ledger AS l
            WHERE (l.state = 'done' OR l.is_queued) AND l.last_seen_at <= now - ?1
              AND NOT EXISTS (SELECT 1 FROM pillarbox_inbox AS q WHERE q.message_id = l.message_id)
              AND NOT EXISTS (SELECT 1 FROM pillarbox_inbox_shelf AS s WHERE s.message_id = l.message_id)
            ORDER BY l.last_seen_at
            LIMIT ?2
       );
