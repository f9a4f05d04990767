-- Resumes a route.
DELETE FROM pillarbox_outbox_pause WHERE route = ?1;
