-- Oldest first, by the index on settled_at; only done rows can match.
DELETE FROM pillarbox_outbox_shelf
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox_shelf
            WHERE state = 'done' AND settled_at <= ?1 - ?2
            ORDER BY settled_at
            LIMIT ?3
       );
