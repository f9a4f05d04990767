-- The lease of a stretch ends, in whole or in part: what is left of it is added again.
DELETE FROM pillarbox_outbox_lease WHERE first_id = ?5;
