-- One row of the hot table, by either name.
SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`, `owner_token`, `locked_until`, `fence`
FROM `pillarbox_outbox`
WHERE `id` = ? OR `message_id` = ?
