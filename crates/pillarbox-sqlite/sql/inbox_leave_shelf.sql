-- Takes a message off the queue's shelf, by its own id.
DELETE FROM pillarbox_inbox_shelf WHERE message_id = ?1;
