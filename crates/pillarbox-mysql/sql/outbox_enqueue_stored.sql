-- What became of the rows of a batch, asked for on MySQL, which cannot return them from the insert as MariaDB does.
-- `created_at` of a new row is the batch's own now.
SELECT `id`, `message_id`, `fence`, COALESCE(`due_at` > `created_at`, FALSE) AS `delayed`,
    COALESCE(`expires_at` <= `created_at`, FALSE) AS `expired`
FROM `pillarbox_outbox` FORCE INDEX (`message_id`)
WHERE `message_id` IN (0 /*messages*/)
