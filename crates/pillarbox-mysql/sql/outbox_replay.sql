-- Dead messages start anew; the last error stays to be read. The program puts another state in the place of this one.
INSERT INTO `pillarbox_outbox`
    (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`)
SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, NULL, NULL, 0, 0, `priority`, `message_type`,
    `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`,
    `headers`, `occurred_at`, `last_error`
FROM `pillarbox_outbox_shelf` FORCE INDEX (PRIMARY)
WHERE `id` IN (0 /*ids*/) AND `state` = 'dead'
ON DUPLICATE KEY UPDATE `pillarbox_outbox`.`id` = `pillarbox_outbox`.`id`
