-- Second half of a move to the shelf, by the ids that the first half answered.
DELETE FROM pillarbox_outbox WHERE id IN (SELECT value FROM json_each(?1));
