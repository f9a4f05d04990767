-- Those not heard of for ?1 microseconds, at most ?2.
DELETE FROM pillarbox_outbox_instance
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_instance
            WHERE abs(now - last_seen_at) >= ?1
            ORDER BY last_seen_at
            LIMIT ?2
       );
