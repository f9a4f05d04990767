-- Writes what was decided about a row that the queue does not have; whoever held a lease on it finds it gone.
UPDATE `pillarbox_inbox_ledger`
SET `state` = ?, `is_queued` = 0, `last_error` = ?, `owner_token` = NULL, `locked_until` = NULL,
    `done_at` = IF(`state` = 'done', UTC_TIMESTAMP(6), NULL)
WHERE `source` = ? AND `source_id` = ?
