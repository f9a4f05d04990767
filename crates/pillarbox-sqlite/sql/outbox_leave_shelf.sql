-- Second half of a move from the shelf, by the ids that the first half answered.
DELETE FROM pillarbox_outbox_shelf WHERE id IN (SELECT value FROM json_each(?1));
