-- The message stands in the queue, with the content of this hash; whoever held a consumer's lease on it finds that gone.
UPDATE `pillarbox_inbox_ledger`
SET `state` = 'processing', `is_queued` = 1, `last_error` = NULL, `owner_token` = NULL, `locked_until` = NULL,
    `done_at` = NULL, `hash_algorithm` = ?, `hash` = ?
WHERE `source` = ? AND `source_id` = ?
