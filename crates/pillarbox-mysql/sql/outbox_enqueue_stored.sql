-- Which rows of a batch are new: those with our fence. `created_at` is the batch's own now.
SELECT `id`, `message_id`, `owner_token` IS NOT NULL AS `leased`, COALESCE(`due_at` > `created_at`, FALSE) AS `delayed`,
    COALESCE(`expires_at` <= `created_at`, FALSE) AS `expired`
FROM `pillarbox_outbox` FORCE INDEX (`message_id`)
WHERE `message_id` IN (0 /*messages*/) AND `fence` = 0 /*fence*/
