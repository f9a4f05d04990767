-- Another content for the next attempt of a message that is under a lease, and held. The lease stays, and so do key and
-- priority, by which the running attempt has its place in the order.
UPDATE `pillarbox_inbox`
SET `topic` = ?, `payload` = ?, `message_type` = ?, `aggregate_type` = ?, `aggregate_id` = ?, `tenant_id` = ?,
    `correlation_id` = ?, `causation_id` = ?, `content_type` = ?, `headers` = ?,
    `occurred_at` = TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'),
    `due_at` = COALESCE(TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))),
    `expires_at` = COALESCE(TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)))
WHERE `message_id` = ? AND `owner_token` IS NOT NULL
