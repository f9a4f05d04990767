-- Shelved rows that expired while they waited; wake_at is the earlier of due and expiry, so the index finds them.
UPDATE pillarbox_outbox_shelf
   SET state = 'dead', wake_at = NULL, settled_at = ?1, settled_by = NULL, last_error = ?2
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox_shelf
            WHERE state = 'pending' AND wake_at <= ?1 AND expires_at <= ?1
            ORDER BY wake_at, id
            LIMIT ?3
       );
