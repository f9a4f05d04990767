-- Many messages at once into the caller's transaction; one of several is known by its fence afterwards, because every call
-- draws one. IGNORE would hide other errors; assigning a column to itself changes nothing.
INSERT INTO `pillarbox_outbox`
    (`message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `priority`, `owner_token`,
    `locked_until`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `key_hash`, `fence`)
VALUES
    (?, ?, ?, UTC_TIMESTAMP(6),
    COALESCE(TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))),
    COALESCE(TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))),
    ?, ?, ?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), ?, ?, ?, ?, ?, ?, ?, ?, ?,
    TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), ?, ? /*fence*/)
ON DUPLICATE KEY UPDATE `id` = `id`
