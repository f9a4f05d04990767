-- Where the queue has these messages, held until the transaction ends; a worker that is at one is waited for.
SELECT `message_id`,
    IF(`owner_token` IS NOT NULL AND `locked_until` > UTC_TIMESTAMP(6), 'leased', 'free')
FROM `pillarbox_inbox` WHERE `message_id` IN (0 /*messages*/) FOR UPDATE
