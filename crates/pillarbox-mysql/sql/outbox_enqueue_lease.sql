-- Messages of a batch that had a due or expiry time to be compared first, and are born leased all the same.
UPDATE `pillarbox_outbox` AS l FORCE INDEX (`message_id`)
SET l.`owner_token` = x'00000000000000000000000000000000' /*owner*/, l.`attempts` = 1,
    l.`locked_until` = TIMESTAMPADD(MICROSECOND, 0 /*lease*/, UTC_TIMESTAMP(6))
WHERE l.`message_id` IN (0 /*messages*/) AND l.`fence` = 0 /*fence*/ AND l.`owner_token` IS NULL
    AND COALESCE(l.`due_at` <= l.`created_at`, TRUE) AND COALESCE(l.`expires_at` > l.`created_at`, TRUE)
