-- A look before a claim, without the write lock: an idle store writes nothing and is in nobody's way.
SELECT EXISTS (
           SELECT 1
             FROM pillarbox_outbox CROSS JOIN pillarbox_outbox_now
            WHERE (owner_token IS NULL OR (coalesce(locked_until, 0) <= now AND lost_lease_count < ?1))
              AND (due_at IS NULL OR due_at <= now)
              AND (expires_at IS NULL OR expires_at > now)
       )
    OR EXISTS (
           SELECT 1
             FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_shelf
            WHERE state = 'pending' AND wake_at <= now AND due_at <= now AND (expires_at IS NULL OR expires_at > now)
       );
