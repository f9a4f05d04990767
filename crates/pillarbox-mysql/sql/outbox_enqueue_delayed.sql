-- Messages that are not due yet go to the shelf with the id that the sequence gave them. One that is there already stays as it is.
INSERT INTO `pillarbox_outbox_shelf`
    (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`, `state`, `wake_at`)
SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`,
    'pending', LEAST(`due_at`, COALESCE(`expires_at`, '9999-12-31'))
FROM `pillarbox_outbox` FORCE INDEX (`message_id`)
WHERE `message_id` IN (0 /*messages*/) AND `fence` = 0 /*fence*/ AND `due_at` > `created_at`
ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`state` = `pillarbox_outbox_shelf`.`state`
