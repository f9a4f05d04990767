-- Pauses a route; one that is paused already stays as it is. The write lock is held since it was looked for.
INSERT INTO pillarbox_outbox_pause (route, reason, paused_by, paused_at)
SELECT ?1, ?2, ?3, now FROM pillarbox_outbox_now WHERE true
ON CONFLICT (route) DO NOTHING;
