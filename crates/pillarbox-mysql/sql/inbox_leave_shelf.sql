-- Takes messages off the queue's shelf, by their own ids.
DELETE FROM `pillarbox_inbox_shelf` WHERE `message_id` IN (0 /*messages*/)
