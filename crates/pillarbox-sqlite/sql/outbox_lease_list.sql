-- The stretches that somebody holds.
SELECT first_id, last_id, fence, locked_until FROM pillarbox_outbox_lease WHERE owner_token = ?1;
