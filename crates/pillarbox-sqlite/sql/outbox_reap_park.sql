-- Shelved rows whose time has come behind a dead one of their key: nobody would claim them, and no look at the live table meets
-- them. It comes before the other statements of a reap, so that what these bury parks nothing before the next look.
UPDATE pillarbox_outbox_shelf
   SET state = 'dead', wake_at = NULL, settled_at = ?1, settled_by = NULL, last_error = ?2
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox_shelf AS waiting
            WHERE state = 'pending' AND wake_at <= ?1 AND due_at <= ?1 AND (expires_at IS NULL OR expires_at > ?1)
              AND message_key IS NOT NULL
              AND EXISTS (
                      SELECT 1 FROM pillarbox_outbox_shelf AS dead
                       WHERE dead.message_key = waiting.message_key AND dead.id < waiting.id
                         AND dead.state <> 'done' AND dead.state = 'dead')
            ORDER BY wake_at, id
            LIMIT ?3
       );
