-- Whatever of the message lies on the shelf and is not done is dead, for this reason; its payload stays.
UPDATE `pillarbox_inbox_shelf`
SET `state` = 'dead', `wake_at` = NULL, `settled_at` = UTC_TIMESTAMP(6), `settled_by` = NULL,
    `last_error` = COALESCE(?, `last_error`)
WHERE `message_id` IN (0 /*messages*/) AND `state` <> 'done'
