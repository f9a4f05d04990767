-- Takes messages out of the queue, by their own ids.
DELETE FROM `pillarbox_inbox` WHERE `message_id` IN (0 /*messages*/)
