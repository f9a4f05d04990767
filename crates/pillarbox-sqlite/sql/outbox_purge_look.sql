-- A look before a purge, without the write lock.
SELECT EXISTS (
    SELECT 1 FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_shelf
     WHERE state = 'done' AND settled_at <= now - ?1
);
