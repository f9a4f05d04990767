-- The same on the queue's shelf.
SELECT `message_id`, IF(`state` = 'pending', 'free', `state`)
FROM `pillarbox_inbox_shelf` WHERE `message_id` IN (0 /*messages*/) FOR UPDATE
