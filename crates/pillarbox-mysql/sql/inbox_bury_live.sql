-- A message of the queue goes to the shelf as it is; inbox_leave_live.sql and inbox_bury.sql do the rest.
INSERT INTO `pillarbox_inbox_shelf` (
    `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`, `priority`,
    `state`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`)
SELECT
    `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`, `priority`,
    'dead', `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`
FROM `pillarbox_inbox` WHERE `message_id` IN (0 /*messages*/)
