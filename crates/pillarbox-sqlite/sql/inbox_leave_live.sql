-- Takes a message out of the queue, by its own id.
DELETE FROM pillarbox_inbox WHERE message_id = ?1;
