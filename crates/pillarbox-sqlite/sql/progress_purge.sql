-- Results of receptors that are so old, oldest first, and whose message the queue has no more.
DELETE FROM pillarbox_outbox_receptor
 WHERE (message_id, receptor) IN (
           SELECT r.message_id, r.receptor
             FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_receptor AS r
            WHERE r.changed_at <= now - ?1
              AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox AS l WHERE l.message_id = r.message_id)
              AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox_shelf AS s WHERE s.message_id = r.message_id)
            ORDER BY r.changed_at
            LIMIT ?2
       );
