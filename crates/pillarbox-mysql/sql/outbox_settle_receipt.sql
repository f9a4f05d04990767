-- Acknowledged; a receipt stays.
-- A message that is on the shelf already, because it was stored twice under an old snapshot, is not put there again.
INSERT INTO `pillarbox_outbox_shelf`
    (`id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`, `state`, `settled_at`, `settled_by`,
    `is_receipt`)
SELECT `id`, `message_id`, `topic`, '', `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'done',
    UTC_TIMESTAMP(6), `owner_token`, TRUE
FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
WHERE l.`id` IN (0 /*ids*/) AND l.`owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
ON DUPLICATE KEY UPDATE `pillarbox_outbox_shelf`.`id` = `pillarbox_outbox_shelf`.`id`
