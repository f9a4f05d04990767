-- A page of the hot table. Texts are compared as bytes: no wildcard, no case folding, no padding.
SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`, `owner_token`, `locked_until`, `fence`
FROM `pillarbox_outbox`
WHERE `id` > ? AND (`owner_token` IS NOT NULL) = ?
    AND (TRUE /*only*/)
    AND (? IS NULL OR CAST(`topic` AS BINARY) = ?) AND (? IS NULL OR CAST(`correlation_id` AS BINARY) = ?)
    AND (? IS NULL OR INSTR(CAST(`last_error` AS BINARY), ?) > 0)
    AND (? IS NULL OR `created_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
    AND (? IS NULL OR `created_at` > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
ORDER BY `id` LIMIT ?
